//! What a NAK that ends a connection means, for the request that it refuses.
//!
//! The codes are few, the reasons many: which of them are possible depends on what was asked (roughly the order of
//! checks of IBTA 9.7.4.1 and 9.7.5).

use rdma_engine::wire::NakCode;

use super::conversation::{Kind, Refusal};
use super::packet_view::Remote;
use super::units::Bytes;

/// The sentence.
pub(super) fn meaning(refusal: &Refusal) -> String {
    match refusal.code {
        NakCode::RemoteAccess => access(refusal),
        NakCode::InvalidRequest => invalid(refusal),
        NakCode::RemoteOperational => operational(refusal),
        NakCode::PsnSequence | NakCode::InvalidRdRequest | NakCode::Reserved(_) => {
            "the responder gave a reason that this transport does not use".into()
        }
    }
}

fn access(refusal: &Refusal) -> String {
    match refusal.kind {
        Some(Kind::Send) => "the rkey that it is to invalidate is none of this queue pair's memory".into(),
        _ => "the rkey is wrong or stale, the range leaves the region, or the region lacks that right; compare \
              rkey, address and length with what the responder registered"
            .into(),
    }
}

const FIT: &str = "or its packets do not fit each other in order or size (another path MTU at each end)";

fn invalid(refusal: &Refusal) -> String {
    let len = Bytes(refusal.len);
    match refusal.kind {
        Some(Kind::Send) if refusal.whole => {
            format!("the SEND of {len} is longer than the receive posted for it, {FIT}")
        }
        Some(Kind::Send) => {
            format!("the SEND, {len} so far, is longer than the receive posted for it, {FIT}")
        }
        Some(Kind::Write) => format!(
            "the responder's QP does not allow remote WRITEs (access flags), the payload is not the {len} that \
             the RETH announces, {FIT}"
        ),
        Some(Kind::Read) => {
            format!("{}the responder's QP does not allow remote READs (access flags)", too_many(refusal))
        }
        Some(Kind::CompareSwap | Kind::FetchAdd) => atomic(refusal),
        Some(Kind::Flush | Kind::AtomicWrite) => format!(
            "{}the responder's QP does not know the operation or does not allow it (access flags), or its \
             address is not aligned",
            too_many(refusal)
        ),
        None => {
            "a SEND is longer than the receive posted for it, a READ or atomic exceeds the number that the \
                 responder answers at once (max_dest_rd_atomic), its QP does not allow the operation (access \
                 flags), an atomic is not 8-byte aligned, or the packets of a message do not fit each other"
                .into()
        }
    }
}

fn atomic(refusal: &Refusal) -> String {
    match refusal.remote {
        Some(Remote { addr, .. }) if addr % 8 != 0 => format!("its address {addr:#x} is no multiple of 8"),
        _ => format!("{}the responder's QP does not allow remote atomics (access flags)", too_many(refusal)),
    }
}

/// READs and atomics share a limit.
fn too_many(refusal: &Refusal) -> String {
    match refusal.outstanding {
        0 | 1 => "the responder answers no READs and atomics (max_dest_rd_atomic is 0), or ".into(),
        n => format!(
            "with it {n} READs and atomics waited for their answer, more than the responder takes at once (its \
             max_dest_rd_atomic, which the requester's max_rd_atomic must not exceed), or "
        ),
    }
}

fn operational(refusal: &Refusal) -> String {
    match refusal.kind {
        Some(Kind::Send) => format!(
            "the responder could not take it: kernel rxe says so when the SEND ({}) is longer than the receive \
             posted for it, others when that receive names memory that is not theirs",
            Bytes(refusal.len)
        ),
        _ => "the responder met a fault of its own: a receive or region that names memory which is not there"
            .into(),
    }
}
