//! The `stats` command: what this worker counted, and how the nodes are doing.

use super::Engine;
use super::reply::text;
use super::request::{Answer, Client};
use crate::memcached::number::Decimal;
use crate::memcached::{StatsGroup, VERSION};
use crate::service::Context;
use crate::service::kv::message::NodeCounts;
use crate::service::memory::items::seconds;
use crate::stats::Counter;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use zerocopy::little_endian::U64;

impl<B: Buf, C: Client> Engine<B, C> {
    pub(super) fn say_stats<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        group: StatsGroup,
        answer: &mut Answer<B>,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match group {
            // Counters of a worker are those of its reports, too: they are not set back.
            StatsGroup::Reset => return text(ctx, answer, &[b"RESET\r\n"]),
            StatsGroup::Detail => return text(ctx, answer, &[b"OK\r\n"]),
            StatsGroup::General => self.general(ctx, answer),
            StatsGroup::Settings => self.say_settings(ctx, answer),
            _ => {}
        }
        text(ctx, answer, &[b"END\r\n"]);
    }

    fn general<T, P>(&mut self, ctx: &mut Context<'_, T, P>, answer: &mut Answer<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let sum =
            |field: fn(&NodeCounts) -> U64| self.parts.iter().map(|p| field(&p.counts).get()).sum::<u64>();
        let count = |counter| ctx.tally.value(counter);
        // As memcached has them: what touches is no read.
        let (touch_hits, touch_misses) = (count(Counter::KvTouchHits), count(Counter::KvTouchMisses));
        let hits = count(Counter::KvGetHits) - touch_hits;
        let misses = count(Counter::KvGetMisses) - touch_misses;
        let now = self.unix_ms(ctx.now);
        let numbers = [
            ("pid", u64::from(std::process::id())),
            ("uptime", ctx.now.since_ns(self.started) / 1_000_000_000),
            ("time", u64::from(seconds(now))),
            ("pointer_size", 64),
            ("curr_connections", 0),
            ("cmd_get", hits + misses),
            ("cmd_set", count(Counter::KvSets)),
            ("cmd_flush", count(Counter::KvFlushes)),
            ("cmd_touch", touch_hits + touch_misses),
            ("get_hits", hits),
            ("get_misses", misses),
            ("delete_misses", count(Counter::KvDeleteMisses)),
            ("delete_hits", count(Counter::KvDeleteHits)),
            ("incr_misses", count(Counter::KvIncrMisses)),
            ("incr_hits", count(Counter::KvIncrHits)),
            ("decr_misses", count(Counter::KvDecrMisses)),
            ("decr_hits", count(Counter::KvDecrHits)),
            ("cas_misses", count(Counter::KvCasMisses)),
            ("cas_hits", count(Counter::KvCasHits)),
            ("cas_badval", count(Counter::KvCasBadval)),
            ("touch_hits", touch_hits),
            ("touch_misses", touch_misses),
            ("limit_maxbytes", sum(|c| c.capacity)),
            ("bytes", sum(|c| c.bytes)),
            ("curr_items", sum(|c| c.items)),
            ("total_items", sum(|c| c.written)),
            ("evictions", sum(|c| c.evicted)),
            ("expired_unfetched", sum(|c| c.expired)),
            ("rdma_reads", count(Counter::KvReads)),
            ("rdma_bucket_reads", count(Counter::KvBucketReads)),
            ("rdma_located", count(Counter::KvLocated)),
            ("rdma_races", count(Counter::KvRaces)),
            ("rdma_send_gets", count(Counter::KvSendGets)),
            ("rdma_calls", count(Counter::KvCalls)),
            ("nodes", self.members.len() as u64),
            ("nodes_up", self.nodes.iter().filter(|n| n.is_up).count() as u64),
        ];
        text(ctx, answer, &[b"STAT version ", VERSION.as_bytes(), b"\r\n"]);
        for (name, value) in numbers {
            stat(ctx, answer, name, value);
        }
    }

    fn say_settings<T, P>(&mut self, ctx: &mut Context<'_, T, P>, answer: &mut Answer<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for (name, value) in [
            ("item_size_max", self.settings.value_bytes_max as u64),
            ("locations", self.settings.locations as u64),
            ("requests", self.settings.jobs as u64),
            ("generation", self.members.generation),
        ] {
            stat(ctx, answer, name, value);
        }
    }
}

fn stat<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, name: &str, value: u64)
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    text(ctx, answer, &[b"STAT ", name.as_bytes(), b" ", Decimal::new(value).bytes(), b"\r\n"]);
}
