use super::*;
use crate::buf::{copy_out, fill};

fn filled(pool: &HeapPool, bytes: &[u8]) -> HeapBuf {
    let mut b = pool.alloc().unwrap();
    b.append(bytes.len()).unwrap().copy_from_slice(bytes);
    b
}

#[test]
fn a_pool_is_bounded_and_full_again() {
    let pool = HeapPool::new(2, 64);
    let a = pool.alloc().unwrap();
    let mut got = vec![];
    assert!(!pool.alloc_bulk(2, |b| got.push(b)), "bulk is all or nothing");
    assert!(got.is_empty());
    assert!(pool.alloc_bulk(1, |b| got.push(b)));
    assert!(pool.alloc().is_none());
    drop((a, got));
    assert!(pool.is_full());
}

#[test]
fn contents_grow_at_both_ends_and_shrink_again() {
    let pool = HeapPool::new(4, 64);
    let mut b = filled(&pool, b"payload");
    b.prepend(4).unwrap().copy_from_slice(b"head");
    assert_eq!(b.to_vec(), b"headpayload");
    assert!(b.prepend(HEADROOM).is_none());
    assert!(b.append(64).is_none());
    b.adj(4);
    b.truncate(3);
    assert_eq!(b.to_vec(), b"pay");
}

#[test]
fn a_shared_segment_is_read_only_until_the_slice_is_gone() {
    let pool = HeapPool::new(4, 64);
    let mut b = filled(&pool, b"shared");
    let mut s = pool.slice(&b, 1, 3).unwrap();
    assert_eq!(s.to_vec(), b"har");
    assert!(b.try_unique().is_none() && b.prepend(1).is_none() && b.append(1).is_none());
    assert!(s.try_unique().is_none());
    assert_eq!(b.spare().count(), 0);
    drop(s);
    assert!(b.try_unique().is_some());
    let s = pool.slice(&b, 0, 6).unwrap();
    drop(b);
    assert_eq!(pool.in_use(), 2, "a slice pins the bytes and its header");
    assert!(!s.is_unique());
    drop(s);
    assert!(pool.is_full());
}

#[test]
fn slices_cross_segments() {
    let pool = HeapPool::new(8, 64);
    let mut b = filled(&pool, b"abc");
    b.chain(filled(&pool, b"defg")).unwrap();
    let s = pool.slice(&b, 2, 3).unwrap();
    assert_eq!((s.to_vec().as_slice(), s.segment_count()), (&b"cde"[..], 2));
    assert_eq!(pool.slice(&b, 3, 4).unwrap().to_vec(), b"defg");
    assert_eq!(pool.slice(&b, 7, 0).unwrap().len(), 0);
    let mut out = [0; 4];
    assert_eq!(copy_out(&b, 2, &mut out), 4);
    assert_eq!(&out, b"cdef");
}

#[test]
fn a_receive_fills_a_chain_in_order() {
    let pool = HeapPool::new(8, 4);
    let mut b = pool.alloc().unwrap();
    b.chain(pool.alloc().unwrap()).unwrap();
    assert_eq!(b.room(), 8);
    assert!(!fill(&mut b, 9, [&b"123456789"[..]].into_iter()));
    assert!(fill(&mut b, 6, [&b"12"[..], b"3456"].into_iter()));
    assert_eq!(b.to_vec(), b"123456");
    assert_eq!(b.segments().map(<[u8]>::len).collect::<Vec<_>>(), [4, 2]);
}

#[test]
fn reserve_moves_the_start_of_an_empty_buffer() {
    let pool = HeapPool::new(1, 64);
    let mut b = pool.alloc().unwrap();
    assert!(b.reserve(HEADROOM + 10));
    assert_eq!((b.headroom(), b.room()), (HEADROOM + 10, 54));
    assert!(!b.reserve(HEADROOM + 65));
    b.append(1).unwrap();
    assert!(!b.reserve(0));
}

#[test]
fn heap_buffers_keep_the_contract() {
    crate::suite::run_buffer_cases(&HeapPool::new(64, 100), &HeapPool::new(64, 0));
    let both = HeapPool::new(64, 64);
    crate::suite::run_buffer_cases(&both, &both);
}

#[test]
fn nothing_is_lost_in_queues_that_fail() {
    let (seeds, steps) = if cfg!(miri) { (1, 150) } else { (40, 600) };
    for seed in 0..seeds {
        crate::suite::random_ownership(&HeapPool::new(200, 128), &HeapPool::new(200, 0), seed, steps);
    }
}
