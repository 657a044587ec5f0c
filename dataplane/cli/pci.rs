//! NICs on the PCI bus, and whose they are.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Kernel drivers that leave a NIC to DPDK, or share it with DPDK.
const DPDK_DRIVERS: [&str; 7] =
    ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core", "mana", "uio_hv_generic"];

/// A network controller on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciNic {
    /// PCI address.
    pub address: String,
    /// Kernel driver it is bound to.
    pub driver: Option<String>,
    /// The kernel's interface on it.
    pub interface: Option<String>,
    /// The interface is up: somebody probably needs it.
    pub is_up: bool,
}

impl PciNic {
    /// True if DPDK may take it. Others are in use by the kernel and must not be touched.
    pub(super) fn is_free(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| DPDK_DRIVERS.contains(&driver))
    }
}

/// The network controllers on the PCI bus.
pub(super) fn pci_nics() -> Vec<PciNic> {
    pci_nics_in(Path::new("/sys/bus/pci/devices"))
}

fn pci_nics_in(devices: &Path) -> Vec<PciNic> {
    let mut nics = Vec::new();
    for device in fs::read_dir(devices).into_iter().flatten().flatten() {
        let class = fs::read_to_string(device.path().join("class")).unwrap_or_default();
        if class.starts_with("0x02") {
            let driver = fs::read_link(device.path().join("driver")).ok();
            let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            let interface = interface_of(&device.path());
            let address = device.file_name().to_string_lossy().into_owned();
            nics.push(PciNic {
                address,
                driver,
                is_up: interface.as_ref().is_some_and(|(_, up)| *up),
                interface: interface.map(|(name, _)| name),
            });
        }
    }
    nics.sort_by(|a, b| a.address.cmp(&b.address));
    nics
}

/// The kernel's interface on a device, and whether it is up. Virtio has it one level further down.
fn interface_of(device: &Path) -> Option<(String, bool)> {
    let below = fs::read_dir(device).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut places = std::iter::once(device.to_owned()).chain(below).map(|place| place.join("net"));
    let net = places.find_map(|net| fs::read_dir(net).ok()?.flatten().next())?;
    let state = fs::read_to_string(net.path().join("operstate")).unwrap_or_default();
    Some((net.file_name().to_string_lossy().into_owned(), matches!(state.trim(), "up" | "unknown")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nics_that_the_kernel_left_alone_are_free() {
        let root = std::env::temp_dir().join(format!("isthmus-pci-{}", std::process::id()));
        let nics = [("0000:01:00.0", "0x020000", "vfio-pci"), ("0000:00:03.0", "0x020000", "virtio-pci")];
        for (address, class, driver) in nics.into_iter().chain([("0000:00:01.0", "0x010802", "nvme")]) {
            let device = root.join(address);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("class"), class).unwrap();
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
        }
        let net = root.join("0000:00:03.0/virtio1/net/eth0");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("operstate"), "up\n").unwrap();
        let found = pci_nics_in(&root);
        assert_eq!((found[0].interface.as_deref(), found[0].is_up), (Some("eth0"), true));
        assert_eq!((found[1].interface.as_deref(), found[1].is_up), (None, false));
        let free: Vec<_> = found.iter().map(|nic| (nic.address.as_str(), nic.is_free())).collect();
        assert_eq!(free, [("0000:00:03.0", false), ("0000:01:00.0", true)]);
        fs::remove_dir_all(&root).unwrap();
    }
}
