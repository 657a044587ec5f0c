//! Replies of the meta protocol: a code of two letters, and what its flags ask for in their order.

use super::{Output, failure, line, number};
use crate::memcached::base64;
use crate::memcached::operation::{Hit, Number, Outcome};
use crate::memcached::request::{MetaForm, Verb};

/// What came of a meta command.
pub(super) fn answer(out: &mut impl Output, form: &MetaForm<'_>, key: &[u8], outcome: &Outcome<'_>) {
    // Flags that the client says are not worth a reply: those of the usual outcome, which for `mg` is a miss.
    match (outcome, form.verb) {
        (Outcome::Hit(hit), _) => self::hit(out, form, key, hit),
        (Outcome::NotFound, Verb::Get) if form.quiet => {}
        (Outcome::NotFound, Verb::Get) => code(out, "EN", form, key, None),
        (Outcome::NotFound, verb) => code(out, "NF", form, key, failed_cas(verb)),
        (Outcome::Stored { .. } | Outcome::Deleted, _) if form.quiet => {}
        (Outcome::Stored { cas }, _) => code(out, "HD", form, key, Some(*cas)),
        (Outcome::Deleted, _) => code(out, "HD", form, key, None),
        (Outcome::NotStored, verb) => code(out, "NS", form, key, failed_cas(verb)),
        (Outcome::Exists, verb) => code(out, "EX", form, key, failed_cas(verb)),
        (Outcome::Number(found), _) if form.quiet && !found.created => {}
        (Outcome::Number(found), _) => self::counted(out, form, key, found),
        (Outcome::NonNumeric | Outcome::OutOfMemory, _) => line(out, failure(outcome)),
    }
}

/// The cas unique that `c` tells when nothing was stored: `ms` says 0, the others nothing.
fn failed_cas(verb: Verb) -> Option<u64> {
    (verb == Verb::Set).then_some(0)
}

/// A flag with a number behind it.
fn numbered(out: &mut impl Output, letter: u8, value: u64) {
    out.put(&[b' ', letter]);
    number(out, value);
}

fn time_to_live(out: &mut impl Output, ttl_s: Option<u32>) {
    match ttl_s {
        Some(seconds) => numbered(out, b't', u64::from(seconds)),
        None => out.put(b" t-1"),
    }
}

/// Repeats a flag that only comes back: opaque and key.
fn echo(out: &mut impl Output, (letter, token): (u8, &[u8]), key: &[u8], binary: bool) {
    match letter {
        b'O' => {
            out.put(b" O");
            out.put(token);
        }
        b'k' => {
            out.put(b" k");
            put_key(out, key, binary);
            if binary {
                out.put(b" b");
            }
        }
        _ => {}
    }
}

fn put_key(out: &mut impl Output, key: &[u8], binary: bool) {
    if binary {
        base64::encode(key, |characters| out.put(characters));
    } else {
        out.put(key);
    }
}

/// A code, with opaque, key, and the cas unique where there is one to tell.
fn code(out: &mut impl Output, code: &str, form: &MetaForm<'_>, key: &[u8], cas: Option<u64>) {
    out.put(code.as_bytes());
    for flag in form.flags.iter() {
        match (flag.0, cas) {
            (b'c', Some(cas)) => numbered(out, b'c', cas),
            _ => echo(out, flag, key, form.binary),
        }
    }
    out.put(b"\r\n");
}

/// `VA <bytes>` where the value is wanted, `HD` where not.
fn head(out: &mut impl Output, value_bytes: Option<u64>) {
    match value_bytes {
        Some(bytes) => {
            out.put(b"VA ");
            number(out, bytes);
        }
        None => out.put(b"HD"),
    }
}

fn hit(out: &mut impl Output, form: &MetaForm<'_>, key: &[u8], hit: &Hit<'_>) {
    head(out, form.value.then_some(u64::from(hit.size)));
    for flag in form.flags.iter() {
        match flag.0 {
            b's' => numbered(out, b's', u64::from(hit.size)),
            b't' => time_to_live(out, hit.ttl_s),
            b'c' => numbered(out, b'c', hit.cas),
            b'f' => numbered(out, b'f', u64::from(hit.flags)),
            b'l' => numbered(out, b'l', u64::from(hit.idle_s)),
            b'h' => numbered(out, b'h', u64::from(hit.bits.fetched)),
            _ => echo(out, flag, key, hit.bits.binary),
        }
    }
    for (is_set, mark) in [(hit.bits.claimed, b" Z"), (hit.bits.stale, b" X"), (hit.won, b" W")] {
        if is_set {
            out.put(mark);
        }
    }
    out.put(b"\r\n");
    if form.value {
        out.put(hit.value);
        out.put(b"\r\n");
    }
}

fn counted(out: &mut impl Output, form: &MetaForm<'_>, key: &[u8], found: &Number) {
    let decimal = crate::memcached::number::Decimal::new(found.value);
    head(out, form.value.then_some(decimal.bytes().len() as u64));
    for flag in form.flags.iter() {
        match flag.0 {
            b'c' => numbered(out, b'c', found.cas),
            b't' => time_to_live(out, found.ttl_s),
            _ => echo(out, flag, key, form.binary),
        }
    }
    out.put(b"\r\n");
    if form.value {
        out.put(decimal.bytes());
        out.put(b"\r\n");
    }
}

/// All that is known of an item. The expiry is in seconds and, as in memcached, negative while it is to come; there are no
/// slab classes.
pub(super) fn debug(out: &mut impl Output, key: &[u8], outcome: &Outcome<'_>) {
    let Outcome::Hit(hit) = outcome else { return line(out, "EN") };
    out.put(b"ME ");
    put_key(out, key, hit.bits.binary);
    match hit.ttl_s {
        None => out.put(b" exp=-1"),
        Some(0) => out.put(b" exp=0"),
        Some(seconds) => {
            out.put(b" exp=-");
            number(out, u64::from(seconds));
        }
    }
    out.put(b" la=");
    number(out, u64::from(hit.idle_s));
    out.put(b" cas=");
    number(out, hit.cas);
    out.put(if hit.bits.fetched { &b" fetch=yes"[..] } else { b" fetch=no" });
    out.put(b" cls=0 size=");
    number(out, key.len() as u64 + u64::from(hit.size));
    out.put(b"\r\n");
}
