use crate::types::Qpn;

/// The UDP source port Linux `rdma_rxe` gives a queue pair without a peer (GSI, UD): 0xC000 plus a 14-bit
/// multiplicative hash of its own QPN.
pub const fn rxe_source_port(qpn: Qpn) -> u16 {
    const GOLDEN_RATIO_32: u32 = 0x61C8_8647;
    let hash = qpn.value().wrapping_mul(GOLDEN_RATIO_32) >> (32 - 14);
    0xC000 | hash as u16
}

/// The UDP source port Linux derives for a connected queue pair (mlx drivers, and rxe too): 14 bits folded
/// from the flow label, or from both QPNs if the label is 0.
pub const fn mlx_source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = match flow_label & 0x000F_FFFF {
        0 => label_of_qpns(local, remote),
        label => label,
    };
    0xC000 | ((label & 0x3FFF) ^ (label >> 14)) as u16
}

const fn label_of_qpns(local: Qpn, remote: Qpn) -> u32 {
    let product = local.value() as u64 * remote.value() as u64;
    let folded = product ^ (product >> 20);
    let folded = folded ^ (folded >> 40);
    folded as u32 & 0x000F_FFFF
}
