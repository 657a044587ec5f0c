//! What the soft transport counts, as statistics show it.

use super::worker::WorkerCounters;
use crate::host::HostCounters;
use crate::stats::{Counter, DropReason, Tally};
use rdma_engine::soft::{DropReason as SoftDrop, SoftCounters};

/// The name under which statistics show a drop of the endpoint: those with one cause and one remedy together.
const fn reason(drop: SoftDrop) -> DropReason {
    match drop {
        SoftDrop::Segmented => DropReason::FabricMalformed,
        SoftDrop::UnknownQp => DropReason::FabricUnknownQp,
        SoftDrop::Icrc => DropReason::FabricIcrc,
        SoftDrop::OutOfOrder | SoftDrop::ResponseGap | SoftDrop::BrokenMessage => {
            DropReason::FabricOutOfOrder
        }
        SoftDrop::Duplicate | SoftDrop::NotReplayable | SoftDrop::Ghost => DropReason::FabricDuplicate,
        SoftDrop::Refused | SoftDrop::TooLong | SoftDrop::NoAccess => DropReason::FabricRefused,
        SoftDrop::NoReceive => DropReason::FabricNoReceive,
        SoftDrop::EventsFull => DropReason::FabricNotWanted,
        SoftDrop::EgressFull => DropReason::FabricTxFull,
        SoftDrop::Unresolved => DropReason::FabricUnresolved,
        // Transport type, state, addresses, keys: what is checked before a packet reaches its queue pair.
        _ => DropReason::FabricNotAdmitted,
    }
}

/// Shows the totals.
pub(super) fn publish(tally: &mut Tally, soft: &SoftCounters, host: &HostCounters, worker: &WorkerCounters) {
    let counters = [
        (Counter::Retransmitted, soft.retransmitted),
        (Counter::Timeouts, soft.timeouts),
        (Counter::NaksSent, soft.sequence_naks_sent),
        (Counter::NaksReceived, soft.sequence_naks),
        (Counter::RnrNaksSent, soft.rnr_naks_sent),
        (Counter::RnrNaksReceived, soft.rnr_naks),
        (Counter::ReadsResumed, soft.reads_resumed),
        (Counter::AcksSent, soft.acks_sent),
        (Counter::Held, soft.held),
        (Counter::SacksSent, soft.sacks_sent),
        (Counter::SacksReceived, soft.sacks),
        (Counter::CnpsSent, soft.cnps_sent),
        (Counter::CnpsReceived, soft.cnps),
        (Counter::FabricPoolDry, soft.pool_dry),
        (Counter::HandedOver, worker.handed_over),
        (Counter::HostFrames, host.received),
        (Counter::AddressConflicts, host.conflicts),
        (Counter::DuplicateAddresses, host.duplicates),
        (Counter::NeighboursUnanswered, host.unanswered),
    ];
    for (counter, total) in counters {
        tally.set(counter, total);
    }
    let mut drops = [0u64; DropReason::ALL.len()];
    for drop in SoftDrop::ALL {
        drops[reason(drop) as usize] += soft.drops(drop);
    }
    let malformed: u64 = soft.malformed.iter().sum();
    drops[DropReason::FabricMalformed as usize] += malformed + host.malformed;
    drops[DropReason::FabricNotWanted as usize] += worker.not_wanted + worker.management + host.left_out;
    drops[DropReason::FabricChecksum as usize] += worker.checksum;
    drops[DropReason::FabricHandoverFull as usize] += worker.handover_full;
    for reason in DropReason::ALL.iter().copied().filter(|r| r.is_fabric() && *r != DropReason::FabricTxFull)
    {
        tally.set_dropped(reason, drops[reason as usize]);
    }
}
