//! Attributes of each change of state, as the verbs want them.
#![allow(unsafe_code)] // reason: zeroed C structures and ibv_modify_qp.

use super::error::check;
use super::ffi::{self, ibv_qp_attr_mask as Mask};
use crate::mem::Access;
use crate::qp::{AddressVector, Change, InitAttr, RtrAttr, RtsAttr};
use crate::types::QpType;
use std::io;

/// The attributes of `change` and which of them count (IBTA vol. 1, 11.2.5.2).
pub(super) fn attributes(kind: QpType, port: u8, change: &Change) -> (ffi::ibv_qp_attr, Mask) {
    // SAFETY: plain numbers and a union of bytes, for which zero is a value.
    let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    use ffi::ibv_qp_state::*;
    let (state, mask) = match change {
        Change::Init(init) => (IBV_QPS_INIT, init_attributes(&mut attr, kind, port, init)),
        Change::Rtr(rtr) => (IBV_QPS_RTR, rtr_attributes(&mut attr, kind, port, rtr)),
        Change::Rts(rts) => (IBV_QPS_RTS, rts_attributes(&mut attr, kind, rts)),
        Change::Sqd => (IBV_QPS_SQD, Mask(0)),
        Change::Resume => (IBV_QPS_RTS, Mask(0)),
        Change::Err => (IBV_QPS_ERR, Mask(0)),
        Change::Reset => (IBV_QPS_RESET, Mask(0)),
    };
    attr.qp_state = state;
    (attr, mask | Mask::IBV_QP_STATE)
}

fn init_attributes(attr: &mut ffi::ibv_qp_attr, kind: QpType, port: u8, init: &InitAttr) -> Mask {
    attr.port_num = port;
    attr.pkey_index = 0;
    let mask = Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT;
    if kind == QpType::Ud {
        attr.qkey = init.qkey;
        return mask | Mask::IBV_QP_QKEY;
    }
    // An unreliable connection has no READs and atomics to allow.
    let most = if kind == QpType::Uc { Access::LOCAL_WRITE.and(Access::REMOTE_WRITE).bits() } else { !0 };
    attr.qp_access_flags = init.access.bits() & most;
    mask | Mask::IBV_QP_ACCESS_FLAGS
}

fn rtr_attributes(attr: &mut ffi::ibv_qp_attr, kind: QpType, port: u8, rtr: &RtrAttr) -> Mask {
    if kind == QpType::Ud {
        return Mask(0);
    }
    attr.ah_attr = ah_attr(&rtr.path, port);
    attr.path_mtu = rtr.pmtu.code().into();
    attr.dest_qp_num = rtr.dest_qpn.value();
    attr.rq_psn = rtr.rq_psn.value();
    let mask = Mask::IBV_QP_AV | Mask::IBV_QP_PATH_MTU | Mask::IBV_QP_DEST_QPN | Mask::IBV_QP_RQ_PSN;
    if kind == QpType::Uc {
        return mask;
    }
    attr.max_dest_rd_atomic = rtr.max_dest_rd_atomic;
    attr.min_rnr_timer = rtr.min_rnr_timer;
    mask | Mask::IBV_QP_MAX_DEST_RD_ATOMIC | Mask::IBV_QP_MIN_RNR_TIMER
}

fn rts_attributes(attr: &mut ffi::ibv_qp_attr, kind: QpType, rts: &RtsAttr) -> Mask {
    attr.sq_psn = rts.sq_psn.value();
    if kind != QpType::Rc {
        return Mask::IBV_QP_SQ_PSN;
    }
    attr.timeout = rts.timeout;
    attr.retry_cnt = rts.retry_cnt;
    attr.rnr_retry = rts.rnr_retry;
    attr.max_rd_atomic = rts.max_rd_atomic;
    Mask::IBV_QP_SQ_PSN
        | Mask::IBV_QP_TIMEOUT
        | Mask::IBV_QP_RETRY_CNT
        | Mask::IBV_QP_RNR_RETRY
        | Mask::IBV_QP_MAX_QP_RD_ATOMIC
}

/// A path as the verbs want it.
pub(super) fn ah_attr(path: &AddressVector, port: u8) -> ffi::ibv_ah_attr {
    let grh = ffi::ibv_global_route {
        dgid: ffi::ibv_gid { raw: path.gid.0 },
        flow_label: flow_label(path),
        sgid_index: path.sgid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
    };
    ffi::ibv_ah_attr { grh, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 1, port_num: port }
}

/// The flow label to ask for. A wanted UDP source port from 0xC000 up is expressed by the label from which drivers
/// derive that port: `0xC000 | (low 14 bits ^ the bits above)`; a label of 0 would mean "choose one". Drivers that
/// derive the port from the QPN (rxe of Linux 6.1) do not care.
fn flow_label(path: &AddressVector) -> u32 {
    const ZERO_BY_FOLDING: u32 = 0x4001;
    match path.udp_source_port {
        Some(port) if path.flow_label == 0 => match u32::from(port) & 0x3FFF {
            0 => ZERO_BY_FOLDING,
            low => low,
        },
        _ => path.flow_label & 0xF_FFFF,
    }
}

/// # Safety
/// `qp` has not been destroyed.
pub(super) unsafe fn modify(
    qp: *mut ffi::ibv_qp,
    attr: &mut ffi::ibv_qp_attr,
    mask: Mask,
) -> Result<(), io::Error> {
    // SAFETY: the caller's promise.
    check(unsafe { ffi::ibv_modify_qp(qp, attr, mask.0 as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Gid;

    /// How drivers make a port of a label.
    fn port_of(label: u32) -> u32 {
        0xC000 | ((label & 0x3FFF) ^ (label >> 14))
    }

    #[test]
    fn a_wanted_source_port_becomes_a_flow_label() {
        let mut path = AddressVector::to(Gid::default(), 1);
        assert_eq!(flow_label(&path), 0);
        for port in [0xC000_u16, 0xC001, 0xD8F2, 0xFFFF] {
            path.udp_source_port = Some(port);
            assert_ne!(flow_label(&path), 0, "0 would leave the choice to the driver");
            assert_eq!(port_of(flow_label(&path)), u32::from(port));
        }
        path.flow_label = 0x1FACE;
        assert_eq!(flow_label(&path), 0x1FACE, "a label that is given wins");
    }

    #[test]
    fn each_type_gets_its_attributes() {
        let init = Change::Init(InitAttr { access: Access::REMOTE_READ.and(Access::REMOTE_WRITE), qkey: 7 });
        let (attr, mask) = attributes(QpType::Ud, 1, &init);
        assert_eq!((attr.qkey, mask.0 & Mask::IBV_QP_ACCESS_FLAGS.0), (7, 0));
        let (attr, _) = attributes(QpType::Uc, 1, &init);
        assert_eq!(attr.qp_access_flags, Access::REMOTE_WRITE.bits());
        let (attr, _) = attributes(QpType::Rc, 1, &init);
        assert_eq!(attr.qp_access_flags, Access::REMOTE_WRITE.and(Access::REMOTE_READ).bits());
        let (_, mask) = attributes(QpType::Rc, 1, &Change::Err);
        assert_eq!(mask.0, Mask::IBV_QP_STATE.0);
    }
}
