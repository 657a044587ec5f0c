use super::*;
use crate::store::geometry::SEGMENT_UNITS;

fn arena(segment_units: u32, segments: u64) -> Arena {
    let bytes = (segments * u64::from(segment_units) + 40) * 64 * 16 / 15;
    Arena::new(&Geometry::with_segments_of(segment_units, bytes, 1).unwrap(), 0)
}

#[test]
fn cells_waste_at_most_an_eighth_up_to_large_ones() {
    for units in [8, 64, 128, 1000, SEGMENT_UNITS] {
        let sizes = sizes(units);
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (2, units));
        assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    }
    let sizes = sizes(SEGMENT_UNITS);
    assert!(sizes.len() < 80, "{}", sizes.len());
    for pair in sizes.windows(2).filter(|p| p[1] <= SEGMENT_UNITS / 16) {
        let (largest, smallest) = (f64::from(pair[1]), f64::from(pair[0] + 1));
        let tail = f64::from(SEGMENT_UNITS % pair[1]) / f64::from(SEGMENT_UNITS);
        assert!(smallest / largest > 0.84 && tail < 0.04, "{pair:?}, {tail} of the segment unused");
    }
    // A value of 4 KiB with a key of up to 64 bytes.
    let cell = sizes[sizes.partition_point(|s| *s < 66)];
    assert!(cell <= 70, "{cell}");
}

#[test]
fn cells_of_a_segment_do_not_meet() {
    for class_units in [2, 3, 5, 9, 31, 64] {
        let mut a = arena(64, 4);
        let class = a.class_of(class_units).unwrap();
        let mut places = vec![];
        while let Some(place) = a.take(class, 0) {
            places.push(place);
        }
        let size = a.size(class);
        assert_eq!(places.len() as u32, 64 / size * a.segments.len() as u32);
        places.sort_unstable();
        assert!(places.windows(2).all(|p| p[1] - p[0] >= u64::from(size)));
        assert!(places.iter().all(|p| a.is_live(*p) && !a.is_live(p + 1)));
        assert!(!a.is_live(0) && !a.is_live(u64::MAX) && !a.is_live(a.first - 1));
        a.check();
        places.iter().enumerate().for_each(|(i, p)| a.retire(*p, i as u64));
        a.check();
        a.reclaim(u64::MAX, places.len() as u64, usize::MAX);
        a.check();
        assert_eq!((a.spare(), a.retired()), (a.segments.len(), 0));
    }
}

#[test]
fn places_come_back_in_the_order_of_their_epochs_and_not_before() {
    let mut a = arena(64, 2);
    let class = a.class_of(60).unwrap();
    let places: Vec<u64> = std::iter::from_fn(|| a.take(class, 0)).collect();
    assert!(a.class_of(2).is_some() && a.take(0, 0).is_none());
    // Around the point where the low bits begin again.
    let first = (1 << 32) - 1;
    places.iter().enumerate().for_each(|(i, p)| a.retire(*p, first + i as u64));
    let now = first + places.len() as u64;
    a.reclaim(first, now, 10);
    assert!(a.take(class, 0).is_none(), "the first one died in the epoch that somebody may still be in");
    a.reclaim(first + 1, now, 10);
    // Its segment is empty and goes to another class.
    assert_eq!((a.spare(), a.take(0, 0)), (1, Some(places[0])));
    assert_eq!(a.take(class, 0), None);
    a.reclaim(now, now, 10);
    assert_eq!(a.take(class, 0), Some(places[1]));
    a.check();
}

#[test]
#[should_panic(expected = "dies twice")]
fn nothing_dies_twice() {
    let mut a = arena(64, 2);
    let place = a.take(3, 0).unwrap();
    a.retire(place, 1);
    a.retire(place, 2);
}

#[test]
fn a_drained_segment_takes_nothing_in_and_becomes_spare() {
    let mut a = arena(64, 3);
    let class = a.class_of(16).unwrap();
    while a.take(class, 0).is_some() {}
    let cells = a.cells_of(class);
    let segment = a.drain(class, 0).unwrap();
    assert!(a.cells_of(class) < cells && a.live_of(class) == a.cells_of(class));
    let mut epoch = 0;
    while let Some((_, place)) = a.item_in(segment, 0) {
        a.retire(place, epoch);
        epoch += 1;
        a.check();
    }
    a.reclaim(epoch - 1, epoch, usize::MAX);
    assert_eq!((a.spare(), a.take(class, 0)), (0, None), "one death is not past");
    a.reclaim(epoch, epoch, usize::MAX);
    a.check();
    assert_eq!(a.spare(), 1);
    assert!(a.take(0, 0).is_some());
    a.check();
}

#[test]
fn picks_are_live_items_of_the_class() {
    let mut a = arena(64, 4);
    assert_eq!(a.pick(0, [1, 1]), None);
    let mine: Vec<u64> = (0..20).filter_map(|_| a.take(0, 0)).collect();
    assert!((0..3).all(|_| a.take(9, 0).is_some()));
    a.retire(mine[4], 1);
    let mut seen = std::collections::HashSet::new();
    for i in 0..2000u32 {
        let random = [i.wrapping_mul(0x9E37_79B9), i.wrapping_mul(0x85EB_CA6B)];
        seen.extend(a.pick(0, random));
    }
    assert_eq!(seen.len(), 19);
    assert!(seen.iter().all(|p| mine.contains(p)));
}
