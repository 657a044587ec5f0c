//! GETs: one READ where the item was last seen, or both buckets of the key and then the item.

use super::job::{Failure, Outcome, Place, Step, Task};
use super::request::Client;
use super::{Admission, Engine, Mark, What};
use crate::memcached::{Command, Hit, KEY_BYTES_MAX, Parsed, parse};
use crate::service::Context;
use crate::service::kv::output::contiguous;
use crate::service::memory::items::{bits, expires_s, seconds};
use crate::stats::Counter;
use crate::store::layout::{Location, UNIT};
use crate::store::reader::{Found, Times, Verdict, Wanted, candidates, judge};
use arrayvec::ArrayVec;
use rdma_engine::buf::{Buf, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{Completion, Op, Refusal, RemoteSlice, SendWr, Status};

/// How often a lookup that was overtaken is done again before the owner is asked.
const ROUNDS: u8 = 3;
/// READs of a lookup by buckets.
const BUCKET_READS: usize = 3;
/// Pieces that a READ may come in without being gathered.
const PIECES: usize = 32;

impl<B: Buf, C: Client> Engine<B, C> {
    /// True if a lookup could post its READs now.
    #[inline]
    pub(super) fn can_read<T: Transport<Buf = B>, P>(&self, ctx: &Context<'_, T, P>, part: usize) -> bool {
        let link = self.parts[part].read.and_then(|path| self.paths[usize::from(path)].link.as_ref());
        link.is_none_or(|link| ctx.transport.send_room(link.qp) >= BUCKET_READS)
    }

    /// Reads the item where it was last seen, or where a slot leads; without either, the buckets.
    pub(super) fn read_item<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let part = usize::from(job.part);
        if job.began.is_none() {
            job.began = Some(self.parts[part].lookups.begin());
            let hash = job.probe.hash;
            let known = self.locations.find(hash).filter(|(p, _)| usize::from(*p) == part);
            let unix_ms = self.unix_ms(ctx.now);
            let clock = self.node_of(part).clock_ms(unix_ms);
            let Some(job) = self.jobs.value(at) else { return };
            job.began_ms = clock;
            match known {
                Some((_, Location { place, units, seq })) => {
                    ctx.tally.add(Counter::KvLocated, 1);
                    job.item = Place { place, units, seq: Some(seq) };
                }
                None => {
                    job.step = Step::Buckets;
                    return self.read_buckets(ctx, at);
                }
            }
        }
        let Some(job) = self.jobs.value(at) else { return };
        let Place { place, units, .. } = job.item;
        if units as usize * UNIT + TAIL > ctx.pools.frames.buf_room() {
            match self.admit_large(ctx, at) {
                Admission::Go => {}
                Admission::Wait => {
                    if let Some(job) = self.jobs.value(at) {
                        job.step = Step::Item;
                    }
                    return self.line_up(at, |p| &mut p.to_read);
                }
                Admission::Fail => return self.finish(ctx, at, Outcome::Failed(Failure::OutOfMemory)),
            }
        }
        let offset = place * UNIT as u64;
        let posted = match self.can_read(ctx, part) {
            true => self.post_read(ctx, part, What::Item, at, offset, units * UNIT as u32),
            false => Posted::Later,
        };
        let Some(job) = self.jobs.value(at) else { return };
        match posted {
            Posted::Yes => {
                ctx.tally.add(Counter::KvReads, 1);
                (job.step, job.reads_out, job.is_broken) = (Step::Reading, 1, false);
            }
            Posted::Later => {
                job.step = Step::Item;
                self.line_up(at, |p| &mut p.to_read);
            }
            Posted::Never(failure) => self.finish(ctx, at, Outcome::Failed(failure)),
        }
    }

    /// Reads both buckets of the key, and the partition's generation behind them.
    pub(super) fn read_buckets<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let (part, probe) = (usize::from(job.part), job.probe);
        let Some(node) = self.node_of(part).node else { return };
        if !self.can_read(ctx, part) || ctx.pools.frames.available() < BUCKET_READS {
            return self.line_up(at, |p| &mut p.to_read);
        }
        let unix_ms = self.unix_ms(ctx.now);
        let clock = self.node_of(part).clock_ms(unix_ms);
        self.slots[at as usize].clear();
        let mut out = 0;
        let mut refused = None;
        let [first, second] =
            probe.buckets.map(|bucket| node.geometry.bucket_offset(probe.partition, bucket) as u64);
        let generation = node.geometry.partition_offset(probe.partition) as u64;
        for (what, offset, len) in [
            (What::Bucket, first, UNIT as u32),
            (What::Bucket, second, UNIT as u32),
            (What::Generation, generation, 8),
        ] {
            match self.post_read(ctx, part, what, at, offset, len) {
                Posted::Yes => out += 1,
                Posted::Later => {}
                Posted::Never(failure) => refused = Some(failure),
            }
        }
        ctx.tally.add(Counter::KvBucketReads, 1);
        let Some(job) = self.jobs.value(at) else { return };
        job.began_ms = clock;
        (job.next_slot, job.generation_read) = (0, 0);
        (job.step, job.reads_out) = (Step::Reading, out);
        job.is_broken = usize::from(out) < BUCKET_READS;
        if out > 0 {
            return;
        }
        if let Some(failure) = refused {
            self.finish(ctx, at, Outcome::Failed(failure));
        } else {
            // There was room a moment ago.
            job.step = Step::Buckets;
            self.line_up(at, |p| &mut p.to_read);
        }
    }

    fn post_read<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        part: usize,
        what: What,
        at: u32,
        offset: u64,
        len: u32,
    ) -> Posted
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &self.parts[part];
        let (Some(path), Some(region)) = (p.read, &p.region) else {
            return Posted::Never(Failure::NodeDown);
        };
        let Some(link) = &self.paths[usize::from(path)].link else {
            return Posted::Never(Failure::NodeDown);
        };
        if offset + u64::from(len) > region.len {
            return Posted::Never(Failure::Refused);
        }
        let small = len as usize + TAIL <= ctx.pools.frames.buf_room();
        if !small && len as usize > ctx.pools.messages.buf_room() {
            return Posted::Never(Failure::OutOfMemory);
        }
        let buf = if small { ctx.pools.frames.alloc() } else { ctx.pools.messages.alloc() };
        let Some(buf) = buf else { return Posted::Later };
        let op = Op::Read(RemoteSlice { addr: region.addr + offset, rkey: region.rkey, len });
        let cookie = Mark::cookie(what, at);
        match ctx.transport.post_send(link.qp, SendWr::new(op, buf, cookie)).map_err(|refused| refused.why) {
            Ok(()) => Posted::Yes,
            Err(Refusal::Full) => Posted::Later,
            Err(Refusal::NoRoom | Refusal::TooLong) => Posted::Never(Failure::OutOfMemory),
            // The queue pair takes none any more: the end of the path is on its way.
            Err(_) => Posted::Never(Failure::NodeDown),
        }
    }

    /// A READ is done.
    pub(super) fn read<T, P>(&mut self, ctx: &mut Context<'_, T, P>, mark: Mark, completion: Completion<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let at = mark.of;
        let Some(job) = self.jobs.value(at) else { return };
        job.reads_out = job.reads_out.saturating_sub(1);
        let part = usize::from(job.part);
        if completion.status != Status::Success {
            job.is_broken = true;
            let path = self.parts[part].read;
            self.path_failed(ctx, path, crate::service::relay::PathEnd::Send(completion.status));
        }
        let Some(job) = self.jobs.value(at) else { return };
        if job.is_broken {
            if job.reads_out == 0 {
                self.read_broken(ctx, at);
            }
            return;
        }
        match mark.what {
            What::Item => self.read_an_item(ctx, at, completion.buf),
            What::Bucket => {
                let mut bucket = [0; UNIT];
                copy_out(&completion.buf, 0, &mut bucket);
                let tag = job.probe.tag;
                if let Some(node) = self.node_of(part).node {
                    self.slots[at as usize].extend(candidates(&bucket, tag, &node.geometry));
                }
                self.buckets_read(ctx, at);
            }
            _ => {
                let mut word = [0; 8];
                copy_out(&completion.buf, 0, &mut word);
                job.generation_read = u64::from_le_bytes(word);
                self.buckets_read(ctx, at);
            }
        }
    }

    /// READs that could not all be posted, or failed: nothing is known.
    fn read_broken<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let part = usize::from(job.part);
        if !self.is_up(part) {
            return self.finish(ctx, at, Outcome::Failed(Failure::NodeDown));
        }
        let Some(job) = self.jobs.value(at) else { return };
        job.rounds += 1;
        if job.rounds > ROUNDS {
            return self.finish(ctx, at, Outcome::Failed(Failure::NodeDown));
        }
        (job.step, job.is_broken) = (Step::Buckets, false);
        self.line_up(at, |p| &mut p.to_read);
    }

    /// Both buckets and the generation are there: the first item, if there may be one.
    fn buckets_read<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let ours = self.members.generation;
        let Some(job) = self.jobs.value(at) else { return };
        if job.reads_out > 0 {
            return;
        }
        if !self.slots[at as usize].is_empty() {
            return self.next_candidate(ctx, at);
        }
        if job.generation_read == ours {
            return self.finish(ctx, at, Outcome::Miss);
        }
        // Another membership: its keys may be elsewhere. The owner says so by name.
        self.fall_back(ctx, at);
    }

    fn next_candidate<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let ours = self.members.generation;
        let Some(job) = self.jobs.value(at) else { return };
        match self.slots[at as usize].get(usize::from(job.next_slot)) {
            Some(slot) => {
                job.next_slot += 1;
                job.item = Place { place: slot.place, units: slot.units, seq: None };
                job.step = Step::Item;
                self.read_item(ctx, at);
            }
            None if job.generation_read == ours => self.finish(ctx, at, Outcome::Miss),
            None => self.fall_back(ctx, at),
        }
    }

    /// A lookup that was overtaken goes on from there, or the owner is asked.
    fn once_more<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32, step: Step)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        job.rounds += 1;
        if job.rounds > ROUNDS {
            return self.fall_back(ctx, at);
        }
        ctx.tally.add(Counter::KvRaces, 1);
        job.step = step;
        self.advance(ctx, at);
    }

    /// The owner is asked.
    fn fall_back<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        ctx.tally.add(Counter::KvSendGets, 1);
        if let Some(job) = self.jobs.value(at) {
            job.step = Step::Ask;
            // It reads no more. The owner may have calls to answer first that wait for the end of this very lookup.
            if let Some(began) = job.began.take() {
                let part = usize::from(job.part);
                self.parts[part].lookups.end(began);
            }
            self.advance(ctx, at);
        }
    }

    fn read_an_item<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32, buf: B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let unix_ms = self.unix_ms(ctx.now);
        let Some(job) = self.jobs.value(at) else { return };
        let (part, hash, remembered) = (usize::from(job.part), job.probe.hash, job.item.seq.is_some());
        let (began_ms, item, task) = (job.began_ms, job.item, job.task);
        let now_ms = self.node_of(part).clock_ms(unix_ms);
        match self.judge(at, item, &buf, Times { began_ms, now_ms }) {
            Verdict::Found(found) => {
                let marks = bits(found.life.marks);
                if task == (Task::Fetch { claim: true }) && marks.stale && !marks.claimed {
                    // Who renews it is for its owner to say.
                    return self.fall_back(ctx, at);
                }
                self.locations.found(hash, part as u16, found.location);
                let value = cut_out(buf, &found);
                self.finish(ctx, at, Outcome::Hit(info(&found, seconds(now_ms)), value));
            }
            Verdict::Expired => {
                self.locations.forget(hash);
                self.finish(ctx, at, Outcome::Miss);
            }
            Verdict::Other if !remembered => self.next_candidate(ctx, at),
            Verdict::Other | Verdict::Gone | Verdict::Torn => self.overtaken(ctx, at, now_ms),
        }
    }

    /// The item was replaced. Where a mutation that was answered meanwhile has put its successor is known; otherwise the
    /// buckets lead to it.
    fn overtaken<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32, now_ms: u64)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let (part, hash) = (job.part, job.probe.hash);
        let newer = job.item.seq.and_then(|seq| self.locations.newer(hash, part, seq));
        let Some(Location { place, units, seq }) = newer else {
            self.locations.forget(hash);
            return self.once_more(ctx, at, Step::Buckets);
        };
        (job.item, job.began_ms) = (Place { place, units, seq: Some(seq) }, now_ms);
        self.once_more(ctx, at, Step::Item);
    }

    fn judge(&mut self, at: u32, item: Place, buf: &B, times: Times) -> Verdict {
        let limits = self.limits();
        let Engine { jobs, requests, parts, nodes, gathered, .. } = self;
        let Some(job) = jobs.value(at) else { return Verdict::Torn };
        let node = &nodes[usize::from(parts[usize::from(job.part)].node)];
        let (Some(node), Some(request)) = (&node.node, requests.get(job.request)) else {
            return Verdict::Torn;
        };
        let mut decoded;
        let key = match job.key.of(request.bytes()) {
            Some(key) => key,
            None => {
                decoded = [0; KEY_BYTES_MAX];
                match parse(request.command(), &mut decoded, &limits) {
                    Parsed::Request(r) => key_of(&r.command),
                    _ => b"",
                }
            }
        };
        let wanted = Wanted { key, place: item.place, units: item.units, seq: item.seq };
        if (2..=PIECES).contains(&buf.segment_count()) && buf.first().len() >= UNIT {
            let pieces: ArrayVec<&[u8], PIECES> = buf.segments().collect();
            return judge(&node.secrets, &wanted, &pieces, times);
        }
        judge(&node.secrets, &wanted, &[contiguous(buf, gathered)], times)
    }
}

/// Whether a READ is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Posted {
    Yes,
    /// There was no room for it.
    Later,
    /// It cannot be.
    Never(Failure),
}

/// Room behind a value for the end of a reply.
const TAIL: usize = 16;

/// The key of a command that has one.
pub(super) fn key_of<'a>(command: &Command<'a>) -> &'a [u8] {
    match *command {
        Command::Item { key, .. } => key,
        Command::TooLarge { stale_key, .. } => stale_key.unwrap_or(b""),
        _ => b"",
    }
}

/// The value alone.
fn cut_out<B: Buf>(mut buf: B, found: &Found) -> B {
    buf.truncate(found.value_at + found.value_len);
    buf.adj(found.value_at);
    buf
}

fn info(found: &Found, now_s: u32) -> Hit<'static> {
    let expires = expires_s(found.life);
    Hit {
        value: b"",
        size: found.value_len as u32,
        flags: found.flags,
        cas: found.cas,
        ttl_s: (expires != 0).then(|| expires.saturating_sub(now_s)),
        idle_s: now_s.saturating_sub(found.written_s),
        bits: bits(found.life.marks),
        won: false,
    }
}
