//! Operations and outcomes between a gateway and the memory node that owns the key, as bytes of a message.
//!
//! A request is a kind, a fixed part, the key, and the value for what has one; an answer is a kind, a fixed part, and the
//! value of a hit. Numbers are little endian. The layouts, with their sizes in bytes:
//!
//! ```text
//! request   kind 1 | key bytes 1 | fixed part of the kind | key | value
//!   fetch       1    flags 1, touch 4, vivify 4, recache 4, steps 2
//!   store       2    flags 1, mode 1, client flags 4, exptime 4, cas 8, value bytes 4
//!   delete      3    flags 1, cas 8, touch 4
//!   arithmetic  4    flags 1, delta 8, cas 8, initial 8, touch 4, vivify 4, steps 2
//!   flush       5    delay 4 (no key: key bytes is 0)
//!   drop        6    (of a value that was too large: the key goes)
//! answer    kind 1 | fixed part of the kind | value
//!   hit         1    flags 1, client flags 4, cas 8, time to live 4, idle 4, size 4, value bytes 4
//!   stored      2    cas 8
//!   number      3    flags 1, value 8, cas 8, time to live 4
//!   others      4..  nothing
//! ```
//!
//! Both ends check everything: what does not decode, to the last byte, is [`Malformed`], never a panic.

use super::KEY_BYTES_MAX;
use super::expiry::Exptime;
use super::operation::{
    Arithmetic, Bits, Delete, Fetch, Hit, Mode, Number, Operation, Outcome, Step, Steps, Store,
};
use super::reply::Output;

/// A message that is none of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// What a node is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call<'a> {
    /// An operation on a key of at most [`KEY_BYTES_MAX`] bytes.
    Operation {
        /// The key.
        key: &'a [u8],
        /// The operation.
        operation: Operation<'a>,
    },
    /// Make all items go after this time.
    Flush {
        /// 0 is at once.
        delay: Exptime,
    },
    /// A value too large for any item came for this key.
    Drop {
        /// The key.
        key: &'a [u8],
    },
}

/// Bytes of a request beside key and value, at most.
pub const CALL_BYTES_MAX: usize = 2 + 35;
/// Bytes of an answer beside the value, at most.
pub const ANSWER_BYTES_MAX: usize = 1 + 29;

const FETCH: u8 = 1;
const STORE: u8 = 2;
const DELETE: u8 = 3;
const ARITHMETIC: u8 = 4;
const FLUSH: u8 = 5;
const DROP: u8 = 6;

const HIT: u8 = 1;
const STORED: u8 = 2;
const NUMBER: u8 = 3;
const NOT_FOUND: u8 = 4;
const NOT_STORED: u8 = 5;
const EXISTS: u8 = 6;
const DELETED: u8 = 7;
const NON_NUMERIC: u8 = 8;
const OUT_OF_MEMORY: u8 = 9;

/// Bytes in front of the key of each kind.
const FETCH_BYTES: usize = 17;
const STORE_BYTES: usize = 24;
const DELETE_BYTES: usize = 15;
const ARITHMETIC_BYTES: usize = 37;
const DROP_BYTES: usize = 2;

/// A time to live without end.
const FOR_EVER: u32 = u32::MAX;

// ---- parts ------------------------------------------------------------------------------------------------------

/// Up to eight yes-or-no in one byte, the first in the lowest bit.
fn pack(flags: &[bool]) -> u8 {
    flags.iter().rev().fold(0, |byte, &flag| byte << 1 | u8::from(flag))
}

/// The flags of a byte; those above the first `N` have to be 0.
fn unpack<const N: usize>(byte: u8) -> Result<[bool; N], Malformed> {
    if N < 8 && byte >> N != 0 {
        return Err(Malformed);
    }
    Ok(std::array::from_fn(|index| byte >> index & 1 != 0))
}

/// Four steps of four bits, the first in the lowest.
fn pack_steps(steps: &Steps) -> u16 {
    steps.0.iter().rev().fold(0, |word, &step| word << 4 | step as u16)
}

fn unpack_steps(word: u16) -> Result<Steps, Malformed> {
    let mut steps = Steps::default();
    let mut seen = 0_u8;
    for index in 0..4 {
        let step = match word >> (4 * index) & 15 {
            0 if word >> (4 * index) == 0 => break,
            1 => Step::Touch,
            2 => Step::Vivify,
            3 => Step::Recache,
            4 => Step::Ttl,
            _ => return Err(Malformed),
        };
        if seen & 1 << step as u8 != 0 {
            return Err(Malformed);
        }
        seen |= 1 << step as u8;
        steps.push(step);
    }
    Ok(steps)
}

fn mode(byte: u8) -> Result<Mode, Malformed> {
    const MODES: [Mode; 6] = [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::Cas];
    MODES.get(usize::from(byte)).copied().ok_or(Malformed)
}

fn put_time(out: &mut impl Output, time: Option<Exptime>) {
    out.put(&time.unwrap_or_default().0.to_le_bytes());
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Exptime, Malformed> {
        self.array().map(|bytes| Exptime(i32::from_le_bytes(bytes)))
    }

    /// A time that is only there if its flag says so; it has to be 0 otherwise.
    fn time_if(&mut self, is_there: bool) -> Result<Option<Exptime>, Malformed> {
        match self.time()? {
            time if is_there => Ok(Some(time)),
            Exptime(0) => Ok(None),
            _ => Err(Malformed),
        }
    }

    fn end<T>(self, message: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

// ---- requests ---------------------------------------------------------------------------------------------------

/// Writes a request. The key has at most [`KEY_BYTES_MAX`] bytes and the value less than 4 GiB, which a parsed request's
/// have.
pub fn put_call(out: &mut impl Output, call: &Call<'_>) {
    put_call_head(out, call);
    if let Call::Operation { operation: Operation::Store(store), .. } = call {
        out.put(store.value);
    }
}

/// Writes a request up to its value.
#[expect(clippy::cast_possible_truncation, reason = "a parsed key has at most 250 bytes")]
pub fn put_call_head(out: &mut impl Output, call: &Call<'_>) {
    match call {
        Call::Operation { key, operation } => {
            put_operation(out, key.len() as u8, operation);
            out.put(key);
        }
        Call::Flush { delay } => {
            out.put(&[FLUSH, 0]);
            out.put(&delay.0.to_le_bytes());
        }
        Call::Drop { key } => {
            out.put(&[DROP, key.len() as u8]);
            out.put(key);
        }
    }
}

/// The key of a request whose beginning this is, if that is all there: for whoever wants to know it before the request is
/// read.
#[must_use]
pub fn key(message: &[u8]) -> Option<&[u8]> {
    let (&[kind, key_bytes], _) = message.split_first_chunk()?;
    let fixed = match kind {
        FETCH => FETCH_BYTES,
        STORE => STORE_BYTES,
        DELETE => DELETE_BYTES,
        ARITHMETIC => ARITHMETIC_BYTES,
        DROP => DROP_BYTES,
        _ => return None,
    };
    message.get(fixed..fixed + usize::from(key_bytes))
}

fn put_operation(out: &mut impl Output, key_bytes: u8, operation: &Operation<'_>) {
    match operation {
        Operation::Fetch(f) => {
            let there = [f.touch.is_some(), f.vivify.is_some(), f.recache.is_some()];
            let flags = pack(&[f.value, f.bump, f.binary, f.claim, there[0], there[1], there[2]]);
            out.put(&[FETCH, key_bytes, flags]);
            [f.touch, f.vivify, f.recache].into_iter().for_each(|time| put_time(out, time));
            out.put(&pack_steps(&f.steps).to_le_bytes());
        }
        Operation::Store(s) => {
            let mut fixed = [0; STORE_BYTES];
            fixed[..4].copy_from_slice(&[STORE, key_bytes, pack(&[s.accept_older, s.binary]), s.mode as u8]);
            fixed[4..8].copy_from_slice(&s.flags.to_le_bytes());
            fixed[8..12].copy_from_slice(&s.exptime.0.to_le_bytes());
            fixed[12..20].copy_from_slice(&s.cas.to_le_bytes());
            fixed[20..].copy_from_slice(&u32::try_from(s.value.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.put(&fixed);
        }
        Operation::Delete(d) => {
            out.put(&[DELETE, key_bytes, pack(&[d.stale, d.cas.is_some(), d.touch.is_some()])]);
            out.put(&d.cas.unwrap_or(0).to_le_bytes());
            put_time(out, d.touch);
        }
        Operation::Arithmetic(a) => {
            let flags = pack(&[a.decrement, a.binary, a.touch.is_some(), a.vivify.is_some()]);
            out.put(&[ARITHMETIC, key_bytes, flags]);
            [a.delta, a.cas, a.initial].into_iter().for_each(|number| out.put(&number.to_le_bytes()));
            [a.touch, a.vivify].into_iter().for_each(|time| put_time(out, time));
            out.put(&pack_steps(&a.steps).to_le_bytes());
        }
    }
}

/// Reads a request.
///
/// # Errors
///
/// When the message is not exactly one request.
pub fn call(message: &[u8]) -> Result<Call<'_>, Malformed> {
    let mut rest = Rest(message);
    let kind = rest.u8()?;
    let key_bytes = usize::from(rest.u8()?);
    if key_bytes > KEY_BYTES_MAX || (kind == FLUSH) != (key_bytes == 0) {
        return Err(Malformed);
    }
    let (mut operation, value_bytes) = match kind {
        FETCH => (Operation::Fetch(fetch(&mut rest)?), 0),
        STORE => {
            let (store, value_bytes) = store(&mut rest)?;
            (Operation::Store(store), value_bytes)
        }
        DELETE => (Operation::Delete(delete(&mut rest)?), 0),
        ARITHMETIC => (Operation::Arithmetic(arithmetic(&mut rest)?), 0),
        FLUSH => {
            let delay = rest.time()?;
            return rest.end(Call::Flush { delay });
        }
        DROP => {
            let key = rest.bytes(key_bytes)?;
            return rest.end(Call::Drop { key });
        }
        _ => return Err(Malformed),
    };
    let key = rest.bytes(key_bytes)?;
    if let Operation::Store(store) = &mut operation {
        store.value = rest.bytes(value_bytes)?;
    }
    rest.end(Call::Operation { key, operation })
}

fn fetch(rest: &mut Rest<'_>) -> Result<Fetch, Malformed> {
    let [value, bump, binary, claim, touch, vivify, recache] = unpack(rest.u8()?)?;
    Ok(Fetch {
        value,
        bump,
        binary,
        claim,
        touch: rest.time_if(touch)?,
        vivify: rest.time_if(vivify)?,
        recache: rest.time_if(recache)?,
        steps: unpack_steps(rest.u16()?)?,
    })
}

/// A store whose value is still to come, and how many bytes it has.
fn store<'a>(rest: &mut Rest<'_>) -> Result<(Store<'a>, usize), Malformed> {
    let [accept_older, binary] = unpack(rest.u8()?)?;
    let mode = mode(rest.u8()?)?;
    let (flags, exptime, cas) = (rest.u32()?, rest.time()?, rest.u64()?);
    let value_bytes = rest.u32()? as usize;
    Ok((Store { mode, flags, exptime, cas, accept_older, binary, value: b"" }, value_bytes))
}

fn delete(rest: &mut Rest<'_>) -> Result<Delete, Malformed> {
    let [stale, has_cas, touch] = unpack(rest.u8()?)?;
    let cas = match rest.u64()? {
        cas if has_cas => Some(cas),
        0 => None,
        _ => return Err(Malformed),
    };
    Ok(Delete { cas, stale, touch: rest.time_if(touch)? })
}

fn arithmetic(rest: &mut Rest<'_>) -> Result<Arithmetic, Malformed> {
    let [decrement, binary, touch, vivify] = unpack(rest.u8()?)?;
    Ok(Arithmetic {
        decrement,
        binary,
        delta: rest.u64()?,
        cas: rest.u64()?,
        initial: rest.u64()?,
        touch: rest.time_if(touch)?,
        vivify: rest.time_if(vivify)?,
        steps: unpack_steps(rest.u16()?)?,
    })
}

// ---- answers ----------------------------------------------------------------------------------------------------

/// Writes an answer.
pub fn put_answer(out: &mut impl Output, outcome: &Outcome<'_>) {
    let kind = match outcome {
        Outcome::Hit(hit) => return put_hit(out, hit),
        Outcome::Stored { cas } => {
            out.put(&[STORED]);
            return out.put(&cas.to_le_bytes());
        }
        Outcome::Number(number) => {
            out.put(&[NUMBER, pack(&[number.created])]);
            out.put(&number.value.to_le_bytes());
            out.put(&number.cas.to_le_bytes());
            return out.put(&number.ttl_s.unwrap_or(FOR_EVER).to_le_bytes());
        }
        Outcome::NotFound => NOT_FOUND,
        Outcome::NotStored => NOT_STORED,
        Outcome::Exists => EXISTS,
        Outcome::Deleted => DELETED,
        Outcome::NonNumeric => NON_NUMERIC,
        Outcome::OutOfMemory => OUT_OF_MEMORY,
    };
    out.put(&[kind]);
}

fn put_hit(out: &mut impl Output, hit: &Hit<'_>) {
    let Bits { stale, claimed, fetched, binary } = hit.bits;
    out.put(&[HIT, pack(&[stale, claimed, fetched, binary, hit.won])]);
    out.put(&hit.flags.to_le_bytes());
    out.put(&hit.cas.to_le_bytes());
    let value_bytes = u32::try_from(hit.value.len()).unwrap_or(u32::MAX);
    for number in [hit.ttl_s.unwrap_or(FOR_EVER), hit.idle_s, hit.size, value_bytes] {
        out.put(&number.to_le_bytes());
    }
    out.put(hit.value);
}

/// Reads an answer.
///
/// # Errors
///
/// When the message is not exactly one answer.
pub fn answer(message: &[u8]) -> Result<Outcome<'_>, Malformed> {
    let mut rest = Rest(message);
    let outcome = match rest.u8()? {
        HIT => Outcome::Hit(hit(&mut rest)?),
        STORED => Outcome::Stored { cas: rest.u64()? },
        NUMBER => {
            let [created] = unpack(rest.u8()?)?;
            let (value, cas, ttl) = (rest.u64()?, rest.u64()?, rest.u32()?);
            Outcome::Number(Number { value, cas, ttl_s: (ttl != FOR_EVER).then_some(ttl), created })
        }
        NOT_FOUND => Outcome::NotFound,
        NOT_STORED => Outcome::NotStored,
        EXISTS => Outcome::Exists,
        DELETED => Outcome::Deleted,
        NON_NUMERIC => Outcome::NonNumeric,
        OUT_OF_MEMORY => Outcome::OutOfMemory,
        _ => return Err(Malformed),
    };
    rest.end(outcome)
}

fn hit<'v>(rest: &mut Rest<'v>) -> Result<Hit<'v>, Malformed> {
    let [stale, claimed, fetched, binary, won] = unpack(rest.u8()?)?;
    let bits = Bits { stale, claimed, fetched, binary };
    let (flags, cas, ttl) = (rest.u32()?, rest.u64()?, rest.u32()?);
    let (idle_s, size, value_bytes) = (rest.u32()?, rest.u32()?, rest.u32()? as usize);
    let value = rest.bytes(value_bytes)?;
    let ttl_s = (ttl != FOR_EVER).then_some(ttl);
    Ok(Hit { value, size, flags, cas, ttl_s, idle_s, bits, won })
}
