//! GETs: one READ where the item was last seen, or both buckets of the key and then the item.

use super::job::{Failure, Outcome, Place, Step, Task};
use super::parts::{Part, Path};
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
use rdma_engine::wr::{Completion, Cookie, Op, Refusal, RemoteSlice, SendWr, Status};

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
    #[inline]
    pub(super) fn read_item<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let unix_ms = self.unix_ms(ctx.now);
        let Engine { jobs, parts, nodes, locations, .. } = self;
        let Some(job) = jobs.value(at) else { return };
        if job.began.is_none() {
            let part = &mut parts[usize::from(job.part)];
            job.began = Some(part.lookups.begin());
            job.began_ms = nodes[usize::from(part.node)].clock_ms(unix_ms);
            let known = locations.find(job.probe.hash).filter(|(p, _)| *p == job.part);
            let Some((_, Location { place, units, seq })) = known else {
                job.step = Step::Buckets;
                return self.read_buckets(ctx, at);
            };
            ctx.tally.add(Counter::KvLocated, 1);
            job.item = Place { place, units, seq: Some(seq) };
        }
        if job.item.units as usize * UNIT + TAIL > ctx.pools.frames.buf_room() && !self.may_fetch(ctx, at) {
            return;
        }
        self.post_item(ctx, at);
    }

    /// True if the job may fetch a large item now. If not it waits, or is over.
    #[cold]
    fn may_fetch<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match self.admit_large(ctx, at) {
            Admission::Go => return true,
            Admission::Wait => {
                if let Some(job) = self.jobs.value(at) {
                    job.step = Step::Item;
                }
                self.line_up(at, |p| &mut p.to_read);
            }
            Admission::Fail => self.finish(ctx, at, Outcome::Failed(Failure::OutOfMemory)),
        }
        false
    }

    /// Posts the READ of the job's item.
    #[inline]
    fn post_item<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(part) = self.jobs.get(at).map(|job| usize::from(job.part)) else { return };
        // As much room as a lookup by buckets needs: one that waits for that must not be overtaken for ever.
        let can_read = self.can_read(ctx, part);
        let Engine { jobs, parts, paths, .. } = self;
        let Some(job) = jobs.value(at) else { return };
        let Place { place, units, .. } = job.item;
        let (offset, len) = (place * UNIT as u64, units * UNIT as u32);
        let posted = match can_read {
            true => post_read(ctx, &parts[part], paths, Mark::cookie(What::Item, at), offset, len),
            false => Posted::Later,
        };
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
            match post_read(ctx, &self.parts[part], &self.paths, Mark::cookie(what, at), offset, len) {
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

    /// A READ is done.
    pub(super) fn read<T, P>(&mut self, ctx: &mut Context<'_, T, P>, mark: Mark, completion: Completion<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let at = mark.of;
        let Some(job) = self.jobs.value(at) else { return };
        job.reads_out = job.reads_out.saturating_sub(1);
        if completion.status != Status::Success || job.is_broken {
            return self.read_failed(ctx, at, completion.status);
        }
        match mark.what {
            What::Item => self.read_an_item(ctx, at, completion.buf),
            What::Bucket => {
                let mut bucket = [0; UNIT];
                copy_out(&completion.buf, 0, &mut bucket);
                let tag = job.probe.tag;
                let part = usize::from(job.part);
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

    /// A READ failed, or one of its round did before it.
    #[cold]
    fn read_failed<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32, status: Status)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        job.is_broken = true;
        let part = usize::from(job.part);
        if status != Status::Success {
            let path = self.parts[part].read;
            self.path_failed(ctx, path, crate::service::relay::PathEnd::Send(status));
        }
        if self.jobs.value(at).is_some_and(|job| job.reads_out == 0) {
            self.read_broken(ctx, at);
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
        let (verdict, now_ms) = self.judge(at, &buf, unix_ms);
        let Some(job) = self.jobs.value(at) else { return };
        let (part, hash, remembered, task) = (job.part, job.probe.hash, job.item.seq.is_some(), job.task);
        match verdict {
            Verdict::Found(found) => {
                let marks = bits(found.life.marks);
                if task == (Task::Fetch { claim: true }) && marks.stale && !marks.claimed {
                    // Who renews it is for its owner to say.
                    return self.fall_back(ctx, at);
                }
                self.locations.found(hash, part, found.location);
                let Err(buf) = self.answer_one(ctx, at, &found, buf) else { return };
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

    /// What the item's bytes are worth, and what the time is for its node.
    #[inline]
    fn judge(&mut self, at: u32, buf: &B, unix_ms: u64) -> (Verdict, u64) {
        let limits = self.limits();
        let Engine { jobs, requests, parts, nodes, gathered, .. } = self;
        let Some(job) = jobs.value(at) else { return (Verdict::Torn, unix_ms) };
        let state = &nodes[usize::from(parts[usize::from(job.part)].node)];
        let now_ms = state.clock_ms(unix_ms);
        let (Some(node), Some(request)) = (&state.node, requests.get(job.request)) else {
            return (Verdict::Torn, now_ms);
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
        let Place { place, units, seq } = job.item;
        let wanted = Wanted { key, place, units, seq };
        let times = Times { began_ms: job.began_ms, now_ms };
        if (2..=PIECES).contains(&buf.segment_count()) && buf.first().len() >= UNIT {
            let pieces: ArrayVec<&[u8], PIECES> = buf.segments().collect();
            return (judge(&node.secrets, &wanted, &pieces, times), now_ms);
        }
        (judge(&node.secrets, &wanted, &[contiguous(buf, gathered)], times), now_ms)
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

/// Posts a READ at a partition's node.
#[inline]
fn post_read<T, P>(
    ctx: &mut Context<'_, T, P>,
    part: &Part,
    paths: &[Path],
    cookie: Cookie,
    offset: u64,
    len: u32,
) -> Posted
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    let (Some(path), Some(region)) = (part.read, &part.region) else {
        return Posted::Never(Failure::NodeDown);
    };
    let Some(link) = &paths[usize::from(path)].link else {
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
    match ctx.transport.post_send(link.qp, SendWr::new(op, buf, cookie)).map_err(|refused| refused.why) {
        Ok(()) => Posted::Yes,
        Err(Refusal::Full) => Posted::Later,
        Err(Refusal::NoRoom | Refusal::TooLong) => Posted::Never(Failure::OutOfMemory),
        // The queue pair takes none any more: the end of the path is on its way.
        Err(_) => Posted::Never(Failure::NodeDown),
    }
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
