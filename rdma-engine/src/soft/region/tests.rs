use super::*;
use crate::mem::Backing;
use crate::soft::config::Entropy;
use std::collections::HashSet;

const READ: Access = Access::REMOTE_READ;

fn table(most: u32) -> Arc<RegionTable> {
    Arc::new(RegionTable::new(most, Random::new(Entropy::Seed(1))))
}

#[test]
fn an_access_needs_key_domain_right_and_range() {
    let table = table(4);
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let (mine, other) = (table.new_pd(), table.new_pd());
    let region = table.register(mine, &arena, READ, false).unwrap();
    let view = RegionView::new(Arc::clone(&table));
    let (rkey, addr) = (region.rkey(), region.window().addr());
    assert!(view.target(mine, rkey, READ, addr, 4096).is_some());
    assert!(view.target(mine, rkey, READ, addr + 4096, 0).is_some());
    assert!(view.target(mine, rkey, READ, addr + 1, 4096).is_none());
    assert!(view.target(mine, rkey, READ, addr.wrapping_sub(1), 1).is_none());
    assert!(view.target(mine, rkey, READ, u64::MAX, 2).is_none());
    assert!(view.target(mine, rkey, Access::REMOTE_WRITE, addr, 1).is_none());
    assert!(view.target(other, rkey, READ, addr, 1).is_none());
    assert!(view.target(mine, Rkey(rkey.0 ^ 1 << 31), READ, addr, 1).is_none());
}

#[test]
fn a_dropped_region_is_gone_after_the_next_look() {
    let table = table(4);
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let pd = table.new_pd();
    let mut view = RegionView::new(Arc::clone(&table));
    let region = table.register(pd, &arena, READ, false).unwrap();
    let (rkey, addr) = (region.rkey(), region.window().addr());
    assert!(view.target(pd, rkey, READ, addr, 1).is_none());
    view.refresh();
    assert!(view.target(pd, rkey, READ, addr, 1).is_some());
    let clone = region.clone();
    drop(region);
    view.refresh();
    assert!(view.target(pd, rkey, READ, addr, 1).is_some(), "a clone holds the registration");
    drop(clone);
    view.refresh();
    assert!(view.target(pd, rkey, READ, addr, 1).is_none());
}

#[test]
fn keys_are_not_reused_at_once() {
    let table = table(2);
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let pd = table.new_pd();
    let keys: Vec<_> = (0..2000).map(|_| table.register(pd, &arena, READ, false).unwrap().rkey()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let _two = [0, 1].map(|_| table.register(pd, &arena, READ, false).unwrap());
    assert!(matches!(table.register(pd, &arena, READ, false), Err(SoftError::TooManyRegions(2))));
    assert!(matches!(table.register(pd, &arena, Access::REMOTE_WRITE, false), Err(SoftError::Access(_))));
}

#[test]
fn only_some_keys_can_be_invalidated_and_all_workers_see_it() {
    let table = table(4);
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let pd = table.new_pd();
    let plain = table.register(pd, &arena, READ, false).unwrap();
    let region = table.register(pd, &arena, READ, true).unwrap();
    let (a, b) = (RegionView::new(Arc::clone(&table)), RegionView::new(Arc::clone(&table)));
    let addr = region.window().addr();
    assert!(!a.invalidate(pd, plain.rkey()));
    assert!(b.target(pd, region.rkey(), READ, addr, 1).is_some());
    assert!(a.invalidate(pd, region.rkey()));
    assert!(b.target(pd, region.rkey(), READ, addr, 1).is_none());
    assert!(!a.invalidate(pd, region.rkey()), "not twice");
}
