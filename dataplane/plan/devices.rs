//! `port.device`: a virtual device or a PCI address.

use super::PortSource;
use super::drivers::driver_facts;
use crate::config::words::nearest;

/// Drivers that are offered when a device is misspelt.
const KNOWN_DRIVERS: [&str; 9] = [
    "net_null",
    "net_ring",
    "net_memif",
    "net_af_packet",
    "net_af_xdp",
    "net_tap",
    "net_pcap",
    "net_vhost",
    "net_virtio_user",
];

/// Reads a device; the error is what is wrong and what to do.
pub(super) fn parse(text: &str) -> Result<PortSource, (String, String)> {
    let (name, args) = text.split_once(',').unwrap_or((text, ""));
    let (name, args) = (name.trim(), args.trim().to_owned());
    if let Some(device) = pci_address(name) {
        return Ok(PortSource::Pci { device, args });
    }
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_vdev = driver.starts_with("net_") || driver.starts_with("eth_");
    if !is_vdev || !name.chars().all(plain) {
        let what = "neither a virtual device nor a PCI address".to_owned();
        return Err((what, remedy_for(driver)));
    }
    let known = driver_facts(driver).is_some();
    if let Some(meant) = nearest(driver, KNOWN_DRIVERS.into_iter()).filter(|_| !known) {
        return Err((format!("no driver is called {driver}"), format!("did you mean \"{meant}0\"?")));
    }
    Ok(PortSource::Vdev { device: name.to_owned(), args, driver: driver.to_owned() })
}

fn remedy_for(driver: &str) -> String {
    match nearest(&format!("net_{driver}"), KNOWN_DRIVERS.into_iter()) {
        Some(meant) => format!("did you mean \"{meant}0\"?"),
        None => "write a device such as \"net_null0\", \"net_af_packet0,iface=eth1\" or \"0000:3b:00.0\""
            .to_owned(),
    }
}

/// `0000:3b:00.0` from that or from `3b:00.0`, in lower case.
pub(super) fn pci_address(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let full = if lower.matches(':').count() == 1 { format!("0000:{lower}") } else { lower };
    let (place, function) = full.split_once('.')?;
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = place.split(':');
    let valid =
        hex(parts.next()?, 4) && hex(parts.next()?, 2) && hex(parts.next()?, 2) && parts.next().is_none();
    let function_valid = matches!(function.as_bytes(), [b'0'..=b'7']);
    (valid && function_valid).then_some(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_come_out_in_full() {
        assert_eq!(pci_address("3B:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci_address("0001:3b:00.0").as_deref(), Some("0001:3b:00.0"));
        for bad in ["", ".", ":", "3b:00", "3b:00.8", "3b:00.", "0:3b:00.0", "a:b:c:d.0", "net_null0"] {
            assert_eq!(pci_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn devices_are_told_apart() {
        let vdev = parse("net_af_packet0,iface=veth0,qpairs=2").unwrap();
        let expected = PortSource::Vdev {
            device: "net_af_packet0".into(),
            args: "iface=veth0,qpairs=2".into(),
            driver: "net_af_packet".into(),
        };
        assert_eq!(vdev, expected);
        assert!(matches!(parse("0000:3b:00.0,dv_flow_en=0").unwrap(), PortSource::Pci { .. }));
        assert_eq!(parse("net_nul0").unwrap_err().1, "did you mean \"net_null0\"?");
        assert_eq!(parse("null0").unwrap_err().1, "did you mean \"net_null0\"?");
        assert!(parse("eth0").is_err());
    }
}
