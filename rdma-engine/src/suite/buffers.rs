//! The contract of [`Buf`] and [`Pool`] as cases, for every kind of buffer.

use super::{Rng, contents};
use crate::buf::{Buf, Pool, copy_out, fill};

/// A case, given a pool of buffers and one of headers for slices (which may be the same).
pub type BufferCase<P> = fn(&P, &P);

/// All cases. The pool needs 32 buffers of 64 bytes with 16 bytes of headroom at least. A case panics where the contract
/// is broken, and leaves both pools as full as it found them.
pub fn buffer_cases<P: Pool>() -> Vec<(&'static str, BufferCase<P>)> {
    vec![
        ("a_fresh_buffer_is_empty_and_its_own", fresh),
        ("a_pool_is_bounded_and_full_again", bounded),
        ("contents_grow_and_shrink_at_both_ends", both_ends),
        ("chains_are_cut_at_any_byte", cuts),
        ("what_is_shared_is_read_only", shared),
        ("a_slice_pins_its_bytes", pinned),
        ("slices_cross_segments", slices),
        ("a_receive_fills_a_chain_in_order", receive),
        ("only_an_empty_unique_buffer_moves_its_start", reserve),
        ("many_are_freed_at_once", freed),
        ("random_use_matches_plain_bytes", random),
    ]
}

/// Runs all cases.
///
/// # Panics
/// Where a case fails, or a buffer is missing after it.
pub fn run_buffer_cases<P: Pool>(pool: &P, headers: &P) {
    for (name, case) in buffer_cases() {
        case(pool, headers);
        for pool in [pool, headers] {
            assert_eq!(pool.available(), pool.capacity(), "{name}: buffers are missing");
        }
    }
}

fn filled<P: Pool>(pool: &P, bytes: &[u8]) -> P::Buf {
    let mut buf = pool.alloc().expect("a buffer");
    buf.append(bytes.len()).expect("room").copy_from_slice(bytes);
    buf
}

/// A chain with one segment for each part.
fn chain<P: Pool>(pool: &P, parts: &[&[u8]]) -> P::Buf {
    let mut head = filled(pool, parts[0]);
    for part in &parts[1..] {
        assert!(head.chain(filled(pool, part)).is_ok());
    }
    head
}

fn fresh<P: Pool>(pool: &P, _: &P) {
    let mut buf = pool.alloc().unwrap();
    assert!(buf.is_empty() && buf.is_unique() && buf.headroom() >= 16);
    assert_eq!((buf.len(), buf.segment_count(), buf.first().len()), (0, 1, 0));
    assert_eq!((buf.tailroom(), buf.room()), (pool.buf_room(), pool.buf_room()));
    assert_eq!(buf.spare().map(|s| s.len()).collect::<Vec<_>>(), [pool.buf_room()]);
    assert_eq!(buf.try_unique().map(|b| b.len()), Some(0));
}

fn bounded<P: Pool>(pool: &P, _: &P) {
    let mut out = Vec::new();
    while let Some(buf) = pool.alloc() {
        out.push(buf);
        assert!(out.len() <= pool.capacity());
    }
    assert_eq!((out.len(), pool.available()), (pool.capacity(), 0));
    assert!(!pool.alloc_bulk(1, |_| panic!("there was none")));
    out.truncate(out.len() - 8);
    let mut more = Vec::new();
    assert!(!pool.alloc_bulk(9, |buf| more.push(buf)) && more.is_empty(), "bulk is all or nothing");
    assert!(pool.alloc_bulk(8, |buf| more.push(buf)) && more.len() == 8);
    assert!(more.iter().all(|b| b.is_empty() && b.is_unique()));
    // Each is there once.
    let mut starts: Vec<usize> =
        out.iter_mut().chain(&mut more).map(|b| b.spare().next().unwrap().as_ptr() as usize).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), pool.capacity(), "a buffer was given out twice");
}

fn both_ends<P: Pool>(pool: &P, _: &P) {
    let mut buf = filled(pool, b"payload");
    let (headroom, tailroom) = (buf.headroom(), buf.tailroom());
    buf.prepend(4).unwrap().copy_from_slice(b"head");
    buf.append(4).unwrap().copy_from_slice(b"tail");
    assert_eq!((contents(&buf), buf.first()), (b"headpayloadtail".to_vec(), &b"headpayloadtail"[..]));
    assert_eq!((buf.headroom(), buf.tailroom()), (headroom - 4, tailroom - 4));
    assert!(buf.prepend(headroom - 3).is_none() && buf.append(tailroom - 3).is_none());
    assert_eq!(buf.len(), 15, "what is refused changes nothing");
    buf.try_unique().unwrap()[4] = b'P';
    buf.adj(4);
    buf.truncate(100);
    buf.truncate(7);
    assert_eq!(contents(&buf), b"Payload");
    buf.adj(7);
    assert!(buf.is_empty() && buf.segment_count() == 1);
    assert!(buf.prepend(headroom + 7).is_some() && buf.headroom() == 0);
}

fn cuts<P: Pool>(pool: &P, _: &P) {
    let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
    let whole = parts.concat();
    for front in 0..=whole.len() {
        for back in 0..=whole.len() - front {
            let mut buf = chain(pool, &parts);
            assert_eq!((buf.len(), buf.segment_count()), (whole.len(), 4));
            buf.adj(front);
            assert_eq!(contents(&buf), whole[front..]);
            let starts = front == 0 || buf.is_empty() || !buf.first().is_empty();
            assert!(starts, "empty segments at the front are freed");
            let keep = whole.len() - front - back;
            buf.truncate(keep);
            assert_eq!(contents(&buf), whole[front..front + keep]);
            assert_eq!(buf.len(), keep);
            assert!(buf.segment_count() >= 1 && buf.is_unique());
            if back > 0 {
                let last = buf.segments().last().unwrap().len();
                assert!(last > 0 || buf.segment_count() == 1, "empty segments at the end are freed");
            }
            let tailroom = buf.tailroom();
            assert_eq!(buf.append(1).is_some(), tailroom > 0);
        }
    }
}

fn shared<P: Pool>(pool: &P, headers: &P) {
    let mut buf = filled(pool, b"shared");
    let mut slice = headers.slice(&buf, 1, 3).unwrap();
    assert_eq!((contents(&slice), slice.len(), slice.segment_count()), (b"har".to_vec(), 3, 1));
    for one in [&mut buf, &mut slice] {
        assert!(!one.is_unique() && one.try_unique().is_none());
        assert!(one.prepend(1).is_none() && one.append(1).is_none());
        assert_eq!((one.spare().count(), one.room()), (0, 0));
    }
    // Each may be cut without the other noticing.
    slice.adj(1);
    buf.truncate(3);
    assert_eq!((contents(&slice), contents(&buf)), (b"ar".to_vec(), b"sha".to_vec()));
    drop(slice);
    buf.try_unique().unwrap()[0] = b'S';
    assert!(buf.is_unique() && contents(&buf) == b"Sha");
    // One shared segment is enough.
    let mut whole = chain(pool, &[b"head"]);
    let slice = headers.slice(&buf, 0, 2).unwrap();
    assert!(whole.chain(buf).is_ok());
    assert!(!whole.is_unique() && whole.try_unique().is_some() && whole.append(1).is_none());
    drop(slice);
    assert!(whole.is_unique() && whole.append(1).is_some());
}

fn pinned<P: Pool>(pool: &P, headers: &P) {
    let buf = filled(pool, b"pinned");
    let first = headers.slice(&buf, 0, 6).unwrap();
    let second = headers.slice(&first, 2, 3).unwrap();
    drop(buf);
    drop(first);
    assert!(pool.available() < pool.capacity(), "the bytes are in use");
    assert_eq!(contents(&second), b"nne");
    assert!(!second.is_unique(), "a slice is not the owner, not even as the last");
}

fn slices<P: Pool>(pool: &P, headers: &P) {
    let buf = chain(pool, &[b"abc", b"de", b"fghi"]);
    for offset in 0..9 {
        for len in 1..=9 - offset {
            let slice = headers.slice(&buf, offset, len).unwrap();
            assert_eq!(contents(&slice), b"abcdefghi"[offset..offset + len]);
        }
    }
    let mut out = [0; 4];
    assert_eq!((copy_out(&buf, 2, &mut out), &out), (4, b"cdef"));
    assert_eq!(copy_out(&buf, 7, &mut out), 2);
}

fn receive<P: Pool>(pool: &P, _: &P) {
    let room = pool.buf_room();
    let bytes: Vec<u8> = (0..2 * room + 3).map(|i| (i % 251) as u8).collect();
    for len in [0, 1, room - 1, room, room + 1, 2 * room + 3] {
        let mut buf = chain(pool, &[b"", b"", b""]);
        assert_eq!(buf.room(), 3 * room);
        assert!(!fill(&mut buf, 3 * room + 1, [&bytes[..]].into_iter()) && buf.is_empty());
        assert!(fill(&mut buf, len, [&bytes[..len / 3], &bytes[len / 3..len]].into_iter()));
        assert_eq!((buf.len(), buf.segment_count()), (len, 3), "empty segments stay");
        assert_eq!(contents(&buf), bytes[..len]);
        let lens: Vec<usize> = buf.segments().map(<[u8]>::len).collect();
        assert_eq!(lens[0], len.min(room), "in chain order");
        buf.adj(len / 2);
        assert_eq!(contents(&buf), bytes[len / 2..len]);
    }
}

fn reserve<P: Pool>(pool: &P, headers: &P) {
    let mut buf = pool.alloc().unwrap();
    let (headroom, room) = (buf.headroom(), buf.room());
    assert!(buf.reserve(headroom + 10));
    assert_eq!((buf.headroom(), buf.room()), (headroom + 10, room - 10));
    assert!(buf.reserve(0) && buf.headroom() >= headroom, "there is more than was asked for");
    assert!(!buf.reserve(headroom + room + 1));
    buf.append(3).unwrap().copy_from_slice(b"abc");
    assert!(!buf.reserve(0), "it is not empty");
    let slice = headers.slice(&buf, 0, 3).unwrap();
    buf.truncate(0);
    assert!(buf.is_empty() && !buf.reserve(0), "it is shared");
    assert_eq!(contents(&slice), b"abc");
}

fn freed<P: Pool>(pool: &P, headers: &P) {
    let one = filled(pool, b"bytes");
    let mut bufs: Vec<P::Buf> = (0..12).map(|_| chain(pool, &[b"a", b"b"])).collect();
    bufs.push(headers.slice(&one, 0, 5).unwrap());
    bufs.push(one);
    P::Buf::free_all(bufs.into_iter());
}

/// Buffers and what they should hold, under random use.
fn random<P: Pool>(pool: &P, headers: &P) {
    let mut rng = Rng::new(7);
    let mut live: Vec<(P::Buf, Vec<u8>)> = Vec::new();
    for step in 0..if cfg!(miri) { 60 } else { 600u32 } {
        if live.len() < 4 || (live.len() < 12 && rng.once_in(4)) {
            if let Some(mut buf) = pool.alloc() {
                let bytes: Vec<u8> = (0..rng.below(pool.buf_room().min(300))).map(|_| step as u8).collect();
                buf.append(bytes.len()).unwrap().copy_from_slice(&bytes);
                live.push((buf, bytes));
            }
            continue;
        }
        let at = rng.below(live.len());
        let (mut buf, mut bytes) = live.swap_remove(at);
        let n = rng.below(bytes.len() + 1);
        match rng.below(8) {
            0 => continue,
            1 => {
                buf.adj(n);
                bytes.drain(..n);
            }
            2 => {
                buf.truncate(n);
                bytes.truncate(n);
            }
            3 => {
                if let Some(room) = buf.prepend(n.min(9)) {
                    room.fill(step as u8);
                    bytes.splice(..0, vec![step as u8; n.min(9)]);
                }
            }
            4 => {
                if let Some(room) = buf.append(n.min(9)) {
                    room.fill(step as u8);
                    bytes.extend(vec![step as u8; n.min(9)]);
                }
            }
            5 if n < bytes.len() && live.len() < 20 => {
                let len = 1 + rng.below(bytes.len() - n);
                if let Some(slice) = headers.slice(&buf, n, len) {
                    live.push((slice, bytes[n..n + len].to_vec()));
                }
            }
            6 if !live.is_empty() => {
                let (tail, more) = live.swap_remove(rng.below(live.len()));
                match buf.chain(tail) {
                    Ok(()) => bytes.extend(more),
                    Err(tail) => live.push((tail, more)),
                }
            }
            _ => {
                let first = buf.first().len();
                if let Some(own) = buf.try_unique() {
                    own.fill(step as u8);
                    bytes[..first].fill(step as u8);
                }
            }
        }
        live.push((buf, bytes));
        for (buf, bytes) in &live {
            assert_eq!((buf.len(), contents(buf) == *bytes), (bytes.len(), true), "step {step}");
        }
    }
}
