//! Pools, mbufs and bursts.

#![allow(unsafe_code)] // One mbuf goes through its raw form.

mod support;

use std::process::ExitCode;

use dpdk_bind::mbuf::{Chain, HEADROOM, MAX_SEGMENTS};
use dpdk_bind::mempool::PoolError;
use dpdk_bind::{Burst, Mbuf, Mempool, PoolConfig};
use support::{Context, Test};

const TESTS: &[Test] = &[
    ("a_pool_counts_what_is_out", a_pool_counts_what_is_out),
    ("a_pool_runs_dry_and_recovers", a_pool_runs_dry_and_recovers),
    ("pool_errors_name_the_remedy", pool_errors_name_the_remedy),
    ("a_dropped_pool_waits_for_its_buffers", a_dropped_pool_waits_for_its_buffers),
    ("chunks_hold_every_buffer", chunks_hold_every_buffer),
    ("an_mbuf_grows_only_within_its_room", an_mbuf_grows_only_within_its_room),
    ("an_mbuf_shrinks_only_within_its_data", an_mbuf_shrinks_only_within_its_data),
    ("set_len_fills_a_chain_in_order", set_len_fills_a_chain_in_order),
    ("reset_places_the_data", reset_places_the_data),
    ("private_bytes_belong_to_the_header", private_bytes_belong_to_the_header),
    ("copies_span_segments", copies_span_segments),
    ("chains_link_and_split", chains_link_and_split),
    ("chains_are_cut_at_both_ends", chains_are_cut_at_both_ends),
    ("chains_have_a_longest_length", chains_have_a_longest_length),
    ("a_shared_mbuf_is_read_only", a_shared_mbuf_is_read_only),
    ("slices_cross_segments", slices_cross_segments),
    ("a_slice_outlives_its_source", a_slice_outlives_its_source),
    ("a_slice_of_a_slice_shares_the_buffer", a_slice_of_a_slice_shares_the_buffer),
    ("slices_out_of_range_or_headers_are_none", slices_out_of_range_or_headers_are_none),
    ("a_deep_clone_is_unique", a_deep_clone_is_unique),
    ("an_mbuf_travels_between_threads", an_mbuf_travels_between_threads),
    ("a_burst_keeps_order", a_burst_keeps_order),
    ("a_burst_frees_what_is_left", a_burst_frees_what_is_left),
    ("raw_mbufs_come_back", raw_mbufs_come_back),
];

fn main() -> ExitCode {
    support::run(TESTS)
}

fn filled(pool: &Mempool, bytes: &[u8]) -> Mbuf {
    pool.copy_from(bytes).expect("a buffer")
}

fn contents(mbuf: &Mbuf) -> Vec<u8> {
    mbuf.segments().flatten().copied().collect()
}

/// A chain with one segment for each part.
fn chain_of(pool: &Mempool, parts: &[&[u8]]) -> Mbuf {
    let mut chain = Chain::new(filled(pool, parts[0]));
    for part in &parts[1..] {
        chain.push(filled(pool, part)).unwrap();
    }
    chain.finish()
}

fn a_pool_counts_what_is_out(cx: &Context<'_>) {
    let pool = cx.buffers(127);
    assert_eq!((pool.capacity(), pool.available(), pool.in_use()), (127, 127, 0));
    let one = pool.alloc().unwrap();
    let mut burst: Burst<32> = Burst::new();
    assert!(pool.alloc_bulk(&mut burst, 10));
    assert_eq!((pool.available(), pool.in_use(), pool.is_full()), (116, 11, false));
    assert!(!pool.alloc_bulk(&mut burst, 23), "the burst has room for 22 more");
    assert_eq!(pool.in_use(), 11);
    drop(one);
    burst.truncate(3);
    assert_eq!(pool.in_use(), 3);
    drop(burst);
    assert!(pool.is_full());
}

fn a_pool_runs_dry_and_recovers(cx: &Context<'_>) {
    let pool = cx.pool(&PoolConfig { count: 15, cache: 0, ..PoolConfig::default() });
    let mut all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 15);
    let mut burst: Burst<16> = Burst::new();
    assert!(!pool.alloc_bulk(&mut burst, 1) && burst.is_empty());
    assert!(pool.copy_from(b"x").is_none());
    all.truncate(12);
    assert!(!pool.alloc_bulk(&mut burst, 4) && burst.is_empty(), "all or none");
    assert!(pool.alloc_bulk(&mut burst, 3));
}

fn pool_errors_name_the_remedy(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let again = Mempool::create(cx.eal, pool.name(), &PoolConfig::default()).unwrap_err();
    assert!(matches!(again, PoolError::Exists(_)), "{again}");
    let huge = PoolConfig { count: 4_000_000, ..PoolConfig::default() };
    let none = Mempool::create(cx.eal, "huge", &huge).unwrap_err();
    assert!(matches!(none, PoolError::NoMemory { .. }), "{none:?}");
    assert!(none.to_string().contains("MiB"), "{none}");
}

fn a_dropped_pool_waits_for_its_buffers(cx: &Context<'_>) {
    let config = PoolConfig { count: 31, cache: 8, ..PoolConfig::default() };
    let pool = Mempool::create(cx.eal, "short_lived", &config).unwrap();
    let mut mbuf = filled(&pool, b"still here");
    drop(pool);
    assert_eq!(cx.eal.pools_waiting(), 1);
    assert!(matches!(Mempool::create(cx.eal, "short_lived", &config), Err(PoolError::Exists(_))));
    assert_eq!(mbuf.try_unique().unwrap(), b"still here");
    drop(mbuf);
    assert_eq!(cx.eal.pools_waiting(), 0);
    let clone = Mempool::create(cx.eal, "short_lived", &config).unwrap().clone();
    assert!(clone.alloc().is_some(), "a clone keeps the pool");
    drop(clone);
    assert_eq!(cx.eal.pools_waiting(), 0);
}

fn chunks_hold_every_buffer(cx: &Context<'_>) {
    let pool = cx.buffers(1023);
    let chunks = pool.chunks();
    for pair in chunks.windows(2) {
        let end = pair[0].addr.as_ptr() as usize + pair[0].len;
        assert!(end < pair[1].addr.as_ptr() as usize, "sorted, disjoint and not adjacent");
    }
    let inside = |addr: usize, len: usize| {
        chunks
            .iter()
            .any(|c| addr >= c.addr.as_ptr() as usize && addr + len <= c.addr.as_ptr() as usize + c.len)
    };
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 1023);
    for mbuf in &all {
        let (spare, len) = mbuf.spare();
        assert!(inside(spare.as_ptr() as usize, len));
    }
}

fn an_mbuf_grows_only_within_its_room(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let mut m = pool.alloc().unwrap();
    let room = pool.data_room() - HEADROOM;
    assert_eq!((m.len(), m.headroom(), m.tailroom(), m.data_room()), (0, HEADROOM, room, pool.data_room()));
    m.append(3).unwrap().copy_from_slice(b"def");
    m.prepend(3).unwrap().copy_from_slice(b"abc");
    assert_eq!(m.data(), b"abcdef");
    assert!(m.prepend(HEADROOM - 2).is_none() && m.append(room - 2).is_none());
    assert_eq!((m.len(), m.headroom()), (6, HEADROOM - 3), "a refusal changes nothing");
    m.prepend(HEADROOM - 3).unwrap().fill(b'<');
    m.append(room - 3).unwrap().fill(b'>');
    assert_eq!((m.headroom(), m.tailroom(), m.len()), (0, 0, pool.data_room()));
    assert_eq!(&m.data()[HEADROOM - 3..HEADROOM + 3], b"abcdef");
    assert!(m.prepend(1).is_none() && m.append(1).is_none());
    assert_eq!(m.prepend(0).map(|b| b.len()), Some(0));
}

fn an_mbuf_shrinks_only_within_its_data(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let mut m = chain_of(&pool, &[b"abcd", b"efgh"]);
    assert!(!m.adj(5) && !m.trim(5), "neither reaches into another segment");
    assert!(m.adj(2) && m.trim(3));
    assert_eq!((contents(&m), m.len()), (b"cde".to_vec(), 3));
    assert!(m.adj(2) && m.trim(1));
    assert!(m.is_empty() && m.segment_count() == 2);
    assert!(!m.adj(1) && !m.trim(1));
}

fn set_len_fills_a_chain_in_order(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let room = pool.data_room() - HEADROOM;
    let mut m = pool.alloc().unwrap();
    m.chain(pool.alloc().unwrap()).unwrap();
    for segment_room in [m.spare().1, m.tailroom()] {
        assert_eq!(segment_room, room);
    }
    assert!(m.set_len(room + 10));
    assert_eq!(m.segments().map(<[u8]>::len).collect::<Vec<_>>(), [room, 10]);
    assert!(m.set_len(5));
    assert_eq!(m.segments().map(<[u8]>::len).collect::<Vec<_>>(), [5, 0]);
    assert!(!m.set_len(2 * room + 1) && m.len() == 5);
    assert_eq!(m.spare_mut().unwrap().len(), room);
}

fn reset_places_the_data(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let mut m = filled(&pool, b"old");
    assert!(m.reset(pool.data_room()) && m.append(1).is_none());
    assert!(!m.reset(pool.data_room() + 1));
    assert!(m.reset(40));
    assert_eq!((m.len(), m.headroom(), m.tailroom()), (0, 40, pool.data_room() - 40));
    let keep = filled(&pool, b"shared");
    let mut slice = keep.share(&pool).unwrap();
    assert!(!slice.reset(0));
}

fn private_bytes_belong_to_the_header(cx: &Context<'_>) {
    let pool = cx.pool(&PoolConfig { count: 31, cache: 0, priv_size: 16, ..PoolConfig::default() });
    let mut m = filled(&pool, b"data");
    m.private_mut().copy_from_slice(b"sixteen bytes...");
    let slice = m.share(&pool).unwrap();
    assert!(slice.private().is_empty(), "an indirect mbuf shows none");
    assert_eq!((m.private(), m.data()), (&b"sixteen bytes..."[..], &b"data"[..]));
    assert!(cx.buffers(31).alloc().unwrap().private().is_empty());
}

fn copies_span_segments(cx: &Context<'_>) {
    let pool = cx.pool(&PoolConfig { count: 63, cache: 0, data_room: 128 + 64, ..PoolConfig::default() });
    let bytes: Vec<u8> = (0..200).collect();
    let m = filled(&pool, &bytes);
    assert_eq!((m.segment_count(), m.len(), contents(&m)), (4, 200, bytes.clone()));
    let mut out = [0; 100];
    assert_eq!(m.copy_to(60, &mut out), 100);
    assert_eq!(out[..], bytes[60..160]);
    assert_eq!(m.copy_to(150, &mut out), 50);
    assert_eq!(m.copy_to(200, &mut out), 0);
    assert!(filled(&pool, b"").is_empty());
    assert!(pool.copy_from(&[0; 64 * 64]).is_none(), "larger than the whole pool");
    assert!(cx.headers(15).copy_from(b"x").is_none(), "no room at all");
}

fn chains_link_and_split(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let mut m = filled(&pool, b"one");
    m.chain(chain_of(&pool, &[b"two", b"three"])).unwrap();
    m.chain(filled(&pool, b"four")).unwrap();
    assert_eq!((m.segment_count(), m.len(), contents(&m)), (4, 15, b"onetwothreefour".to_vec()));
    assert_eq!(m.append(1).map(|b| b.fill(b'!')), Some(()), "appends to the last segment");
    let (first, rest) = m.split_first();
    let rest = rest.unwrap();
    assert_eq!((first.segment_count(), first.len()), (1, 3));
    assert_eq!((rest.segment_count(), contents(&rest)), (3, b"twothreefour!".to_vec()));
    let (_, none) = first.split_first();
    assert!(none.is_none());
}

fn chains_are_cut_at_both_ends(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let parts: [&[u8]; 4] = [b"abc", b"", b"defg", b"hi"];
    let whole = parts.concat();
    for n in 0..=whole.len() {
        for len in 0..=whole.len() - n {
            let m = chain_of(&pool, &parts);
            for mut m in [m.share(&headers).unwrap(), m] {
                assert!(m.advance(n) && m.truncate(len));
                assert_eq!(contents(&m), whole[n..n + len], "{n} {len}");
                assert_eq!((m.len(), m.segment_count()), (len, m.segments().count()));
                assert!(!m.advance(len + 1) && !m.truncate(len + 1) && m.len() == len);
            }
        }
    }
    let mut m = chain_of(&pool, &parts);
    assert!(m.truncate(3) && m.segment_count() == 1, "empty segments go with the rest");
    let mut m = chain_of(&pool, &parts);
    assert!(m.advance(3) && m.segment_count() == 4, "nothing is freed before it has to be");
    assert!(m.advance(1) && m.segment_count() == 2 && m.port() == chain_of(&pool, &parts).port());
}

fn chains_have_a_longest_length(cx: &Context<'_>) {
    let pool = cx.headers(70_000);
    let mut chain = Chain::new(pool.alloc().unwrap());
    for _ in 1..MAX_SEGMENTS {
        chain.push(pool.alloc().unwrap()).unwrap();
    }
    let one_more = chain.push(pool.alloc().unwrap()).unwrap_err();
    assert_eq!((chain.segment_count(), one_more.segment_count()), (MAX_SEGMENTS, 1));
    let mut m = chain.finish();
    let one_more = m.chain(one_more).unwrap_err();
    assert_eq!(pool.in_use(), MAX_SEGMENTS + 1);
    drop(one_more);
}

fn a_shared_mbuf_is_read_only(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let mut m = filled(&pool, b"payload");
    let mut slice = m.slice(&headers, 3, 4).unwrap();
    for shared in [&mut m, &mut slice] {
        assert!(!shared.is_unique());
        assert!(shared.try_unique().is_none() && shared.segments_mut().is_none());
        assert!(shared.prepend(1).is_none() && shared.append(1).is_none());
        assert!(shared.spare_mut().is_none() && !shared.set_len(1) && !shared.reset(0));
    }
    assert!(slice.is_indirect() && !m.is_indirect());
    // Trimming moves marks, not bytes.
    assert!(slice.adj(1) && slice.trim(1));
    assert_eq!((slice.data(), m.data()), (&b"oa"[..], &b"payload"[..]));
    drop(slice);
    assert!(m.is_unique() && headers.is_full());
    m.try_unique().unwrap().fill(b'x');
    // A chain is unique if all of it is; its first segment can be writable nevertheless.
    let tail = filled(&pool, b"tail");
    let shared_tail = tail.share(&headers).unwrap();
    m.chain(tail).unwrap();
    assert!(!m.is_unique() && m.try_unique().is_some() && m.append(1).is_none() && m.prepend(1).is_some());
    drop(shared_tail);
    assert!(m.is_unique() && m.segments_mut().unwrap().count() == 2);
}

fn slices_cross_segments(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let m = chain_of(&pool, &[b"abc", b"", b"defg", b"hi"]);
    let whole = b"abcdefghi";
    for offset in 0..whole.len() {
        for len in 1..=whole.len() - offset {
            let slice = m.slice(&headers, offset, len).unwrap();
            assert_eq!(contents(&slice), whole[offset..offset + len], "{offset}+{len}");
            assert_eq!(slice.len(), len);
            assert_eq!(slice.segment_count(), headers.in_use());
        }
    }
    assert_eq!(m.slice(&headers, 2, 2).unwrap().segment_count(), 2, "the empty segment is left out");
}

fn a_slice_outlives_its_source(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let m = chain_of(&pool, &[b"first", b"second"]);
    let slice = m.slice(&headers, 7, 3).unwrap();
    drop(m);
    assert_eq!(pool.in_use(), 1, "only the segment that is still looked at");
    let others: Vec<Mbuf> = std::iter::from_fn(|| pool.copy_from(&[0xee; 32])).collect();
    assert_eq!((others.len(), slice.data()), (62, &b"con"[..]));
    drop(slice);
    assert_eq!(pool.in_use(), 62);
}

fn a_slice_of_a_slice_shares_the_buffer(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let m = filled(&pool, b"0123456789");
    let outer = m.slice(&headers, 2, 6).unwrap();
    let inner = outer.slice(&headers, 1, 3).unwrap();
    drop(m);
    drop(outer);
    assert_eq!((inner.data(), pool.in_use(), headers.in_use()), (&b"345"[..], 1, 1));
}

fn slices_out_of_range_or_headers_are_none(cx: &Context<'_>) {
    let (pool, headers) =
        (cx.buffers(63), cx.pool(&PoolConfig { count: 2, cache: 0, data_room: 0, ..PoolConfig::default() }));
    let m = chain_of(&pool, &[b"ab", b"cd", b"ef"]);
    assert!(m.slice(&headers, 0, 0).is_none() && m.slice(&headers, 0, 7).is_none());
    assert!(m.slice(&headers, 6, 1).is_none() && m.slice(&headers, 1, usize::MAX).is_none());
    assert!(m.slice(&headers, 0, 6).is_none(), "three headers needed, two there");
    assert!(headers.is_full(), "what was taken for the failed slice is back");
    assert!(m.is_unique());
}

fn a_deep_clone_is_unique(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let m = chain_of(&pool, &[b"abc", b"def"]);
    let shared = m.share(&headers).unwrap();
    let mut copy = shared.clone_deep(&pool).unwrap();
    assert!(copy.is_unique() && !copy.is_indirect() && copy.headroom() == HEADROOM);
    copy.try_unique().unwrap().fill(b'x');
    assert_eq!((contents(&copy), contents(&m)), (b"xxxxxx".to_vec(), b"abcdef".to_vec()));
    assert_eq!(copy.port(), m.port());
}

fn an_mbuf_travels_between_threads(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(255), cx.headers(255));
    let m = filled(&pool, b"shared between threads");
    let slices: Vec<Mbuf> = (0..16).map(|i| m.slice(&headers, i, 4).unwrap()).collect();
    std::thread::scope(|s| {
        for (i, slice) in slices.into_iter().enumerate() {
            let (pool, headers) = (pool.clone(), headers.clone());
            s.spawn(move || {
                assert_eq!(slice.data(), &b"shared between threads"[i..i + 4]);
                for _ in 0..100 {
                    let again = slice.share(&headers).expect("a header");
                    drop(again.clone_deep(&pool).expect("a buffer"));
                }
            });
        }
        drop(m);
    });
}

fn a_burst_keeps_order(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let byte = |m: &Mbuf| m.data()[0];
    let mut burst: Burst<4> = (0..4u8).map(|i| filled(&pool, &[i])).collect();
    let spill = burst.push(filled(&pool, &[9])).unwrap_err();
    assert_eq!((byte(&spill), burst.is_full(), burst.room()), (9, true, 0));
    assert_eq!(burst.take(1).map(|m| byte(&m)), Some(1));
    assert!(burst.take(3).is_none());
    assert_eq!(burst.iter().map(byte).collect::<Vec<_>>(), [0, 2, 3]);
    burst.push(spill).unwrap();
    assert_eq!(burst.pop().map(|m| byte(&m)), Some(9));
    let mut other: Burst<2> = Burst::new();
    assert_eq!(other.append_from(&mut burst), 2);
    assert_eq!((other.iter().map(byte).collect::<Vec<_>>(), byte(&burst.as_slice()[0])), (vec![0, 2], 3));
    assert_eq!(other.drain().map(|m| byte(&m)).collect::<Vec<_>>(), [0, 2]);
    assert!(other.is_empty() && other.pop().is_none());
    let many: Burst<2> = (0..5u8).map(|i| filled(&pool, &[i])).collect();
    assert_eq!((many.len(), pool.in_use()), (2, 3));
}

fn a_burst_frees_what_is_left(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(63), cx.headers(63));
    let mut burst: Burst<16> = Burst::new();
    for i in 0..4 {
        let m = chain_of(&pool, &[b"head", b"tail"]);
        burst.push(m.slice(&headers, i, 4).unwrap()).unwrap();
        burst.push(m).unwrap();
    }
    let mut drain = burst.drain();
    assert_eq!(drain.len(), 8);
    let kept = drain.next().unwrap();
    drop(drain);
    assert!(burst.is_empty());
    assert_eq!((kept.data(), headers.in_use(), pool.in_use()), (&b"head"[..], 1, 1));
}

fn raw_mbufs_come_back(cx: &Context<'_>) {
    let pool = cx.buffers(63);
    let m = filled(&pool, b"raw");
    let address = m.as_raw();
    // SAFETY: the pointer comes from an mbuf given away one line before.
    let m = unsafe { Mbuf::from_raw(m.into_raw()) };
    assert_eq!((m.as_raw(), m.data()), (address, &b"raw"[..]));
}
