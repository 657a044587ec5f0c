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
            nics.push(PciNic { address: device.file_name().to_string_lossy().into_owned(), driver });
        }
    }
    nics.sort_by(|a, b| a.address.cmp(&b.address));
    nics
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
        let found = pci_nics_in(&root);
        let free: Vec<_> = found.iter().map(|nic| (nic.address.as_str(), nic.is_free())).collect();
        assert_eq!(free, [("0000:00:03.0", false), ("0000:01:00.0", true)]);
        fs::remove_dir_all(&root).unwrap();
    }
}
