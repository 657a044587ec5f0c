use super::*;
use crate::store::geometry::Geometry;
use crate::store::layout::{Life, NEVER};
use crate::store::{Item, Write, Writer};
use rdma_engine::mem::{Arena, Backing, Window};
use rdma_engine::sim::rng::Rng;
use zerocopy::IntoBytes;

const KEY: &[u8] = b"the key";
const NOW: Times = Times { began_ms: 100, now_ms: 110 };

struct Fixture {
    _arena: Arena,
    window: Window,
    secrets: Secrets,
    writer: Writer,
}

fn fixture() -> Fixture {
    let geometry = Geometry::with_segments_of(64, 64 << 10, 1).unwrap();
    let arena = Arena::new(64 << 10, Backing::Pages).unwrap();
    let (window, secrets) = (arena.window(), Secrets::new([5, 6, 7, 8]));
    let writer = Writer::new(window, geometry, 0, secrets, 9, 0).unwrap();
    Fixture { _arena: arena, window, secrets, writer }
}

impl Fixture {
    fn set(&mut self, key: &[u8], value: &[u8], expires_ms: u64) -> Item {
        self.writer
            .set(
                &Write {
                    key,
                    value: &[value],
                    flags: 7,
                    life: Life { expires_ms, marks: 5 },
                    cas: None,
                    written_s: 9,
                },
                0,
            )
            .unwrap()
    }

    fn read(&self, at: Location) -> Vec<u8> {
        let mut bytes = vec![0; at.units as usize * UNIT];
        self.window.copy_out(at.place as usize * UNIT, &mut bytes);
        bytes
    }

    fn judge(&self, at: Location, bytes: &[u8]) -> Verdict {
        judge(&self.secrets, &Wanted::at(KEY, at), &[bytes], NOW)
    }
}

/// Every mix of units of the two states of a place, or `most` random ones.
fn mixes(before: &[u8], after: &[u8], most: u32, mut see: impl FnMut(u32, &[u8])) {
    let units = before.len() / UNIT;
    let mut rng = Rng::new(1);
    let all = units < 32 && 1 << units <= most;
    for n in 0..if all { 1 << units } else { most } {
        let mask = if all { n } else { rng.bits() as u32 };
        let pick = |i: usize| if mask >> (i % 32) & 1 == 0 { before } else { after };
        let mix: Vec<u8> = (0..units).flat_map(|i| pick(i)[i * UNIT..(i + 1) * UNIT].to_vec()).collect();
        see(mask, &mix);
    }
}

#[test]
fn a_mix_of_two_items_in_one_place_is_neither() {
    for value_len in [40usize, 60, 300, 500] {
        let mut f = fixture();
        let old = vec![1; value_len];
        let first = f.set(KEY, &old, NEVER).location;
        let before = f.read(first);
        // The same key, the same place, other bytes: what reuse without waiting would do.
        assert!(f.writer.delete(KEY, 0));
        f.writer.tick();
        let new: Vec<u8> = (0..value_len).map(|i| if i % 2 == 0 { 1 } else { 2 }).collect();
        let second = f.set(KEY, &new, NEVER).location;
        assert_eq!((first.place, first.units), (second.place, second.units));
        let after = f.read(second);
        let (mut torn, mut whole) = (0, 0);
        mixes(&before, &after, 1 << 10, |_, mix| {
            let seq_of_mix = ItemHeader::ref_from_prefix(mix).unwrap().0.seq.get();
            for (at, bytes) in [(first, &before), (second, &after)] {
                match f.judge(at, mix) {
                    // Bytes behind the value may be anything.
                    Verdict::Found(found) => {
                        let end = found.value_at + found.value_len;
                        assert_eq!(mix[16..end], bytes[16..end]);
                        whole += 1;
                    }
                    Verdict::Torn => torn += 1,
                    Verdict::Gone => assert_ne!(seq_of_mix, at.seq),
                    other => panic!("{other:?}"),
                }
            }
        });
        assert!(whole >= 2 && torn >= 2, "{whole} {torn}");
    }
}

#[test]
fn a_mix_with_the_cells_of_another_cut_is_no_item() {
    let mut f = fixture();
    let large = f.set(KEY, &[77; 600], NEVER).location;
    let before = f.read(large);
    assert!(f.writer.delete(KEY, 0));
    f.writer.tick();
    for i in 0..20u8 {
        let small = f.set(&[i], &[i; 70], NEVER).location;
        assert!(i > 0 || small.place == large.place, "the segment is cut anew");
    }
    let after = f.read(large);
    mixes(&before, &after, 1 << 11, |mask, mix| {
        let verdict = f.judge(large, mix);
        assert_eq!(matches!(verdict, Verdict::Found(_)), mix == before, "{mask:b} {verdict:?}");
    });
}

#[test]
fn overwriting_passes_through_states_that_are_old_new_or_nothing() {
    let mut f = fixture();
    let at = f.set(KEY, &[1; 200], NEVER).location;
    let before = f.read(at);
    f.set(KEY, &[2; 200], NEVER);
    let after = f.read(at);
    // Only the state word of the old item may have changed.
    assert_eq!(before[8..], after[8..]);
    assert!(matches!(f.judge(at, &before), Verdict::Found(_)));
    assert_eq!(f.judge(at, &after), Verdict::Gone);
}

#[test]
fn a_value_made_to_look_like_an_item_is_none() {
    let mut f = fixture();
    let real = f.set(KEY, b"real", NEVER).location;
    let mut fake = f.read(real);
    // The client knows everything but the secret; it even has the seal of the real item.
    let value: Vec<u8> = std::iter::repeat_n(0, UNIT - 4).chain(fake.clone()).chain([0; 64]).collect();
    let carrier = f.set(b"evil", &value, NEVER).location;
    let inside = Location { place: carrier.place + 2, ..real };
    assert_eq!(f.read(inside), fake);
    assert_eq!(f.judge(inside, &f.read(inside)), Verdict::Torn);
    // Nor does a change to the real one go unseen, wherever it is under the seal.
    let end = UNIT + KEY.len() + 4;
    for at in 16..end {
        fake[at] ^= 1;
        let wanted = Wanted { seq: None, ..Wanted::at(KEY, real) };
        assert_eq!(judge(&f.secrets, &wanted, &[&fake], NOW), Verdict::Torn, "byte {at}");
        fake[at] ^= 1;
    }
    assert!(matches!(f.judge(real, &fake), Verdict::Found(_)));
}

#[test]
fn expiry_goes_by_the_time_the_lookup_began() {
    let mut f = fixture();
    for (expires_ms, found, expired) in
        [(111, true, false), (110, false, false), (101, false, false), (100, false, true)]
    {
        let at = f.set(KEY, b"v", expires_ms).location;
        let verdict = f.judge(at, &f.read(at));
        assert_eq!(matches!(verdict, Verdict::Found(_)), found, "{expires_ms}: {verdict:?}");
        assert_eq!(verdict == Verdict::Expired, expired, "{expires_ms}: {verdict:?}");
    }
    // A touch is seen at once and breaks no seal.
    let at = f.set(KEY, b"v", 50_000).location;
    f.writer.touch(KEY, Life { expires_ms: 100, marks: 1 }, 50).unwrap();
    assert_eq!(f.judge(at, &f.read(at)), Verdict::Expired);
    assert!(
        f.writer.touch(KEY, Life { expires_ms: 900, marks: 1 }, 100).is_none(),
        "what has expired does not come back"
    );
}

#[test]
fn other_keys_are_told_from_torn_items() {
    let mut f = fixture();
    let at = f.set(b"the kez", b"value", NEVER).location;
    let bytes = f.read(at);
    assert_eq!(f.judge(at, &bytes), Verdict::Other);
    let longer = f.set(b"the key and more", b"value", NEVER).location;
    assert_eq!(f.judge(longer, &f.read(longer)), Verdict::Other);
    let gone = Location { seq: at.seq + 1, ..at };
    assert_eq!(f.judge(gone, &bytes), Verdict::Gone);
}

#[test]
fn pieces_may_be_cut_anywhere_behind_the_header() {
    let mut f = fixture();
    let at = f.set(KEY, &[9; 150], NEVER).location;
    let bytes = f.read(at);
    let whole = f.judge(at, &bytes);
    assert!(matches!(whole, Verdict::Found(Found { value_at: 71, value_len: 150, flags: 7, .. })));
    for cut in UNIT..bytes.len() {
        let (a, b) = bytes.split_at(cut);
        let (b, c) = b.split_at(b.len() / 2);
        assert_eq!(judge(&f.secrets, &Wanted::at(KEY, at), &[a, b, c], NOW), whole, "cut at {cut}");
    }
    for cut in 0..UNIT + KEY.len() + 150 {
        assert_eq!(f.judge(at, &bytes[..cut]), Verdict::Torn, "only {cut} bytes came");
    }
    assert_eq!(judge(&f.secrets, &Wanted::at(KEY, at), &[], NOW), Verdict::Torn);
}

#[test]
fn any_bytes_are_judged_without_harm() {
    let f = fixture();
    let mut rng = Rng::new(2);
    for _ in 0..3_000 {
        let mut bytes = vec![0u8; rng.below(300) as usize];
        bytes.iter_mut().for_each(|b| *b = rng.bits() as u8);
        if bytes.len() >= UNIT {
            bytes[..8].copy_from_slice(&LIVE.to_le_bytes());
            bytes[48..50].copy_from_slice(&(rng.below(260) as u16).to_le_bytes());
            bytes[40..44].copy_from_slice(&(rng.below(400) as u32).to_le_bytes());
            let units = rng.within(1, 8) as u32;
            bytes[50..52].copy_from_slice(&(units as u16).to_le_bytes());
            let wanted = Wanted { key: KEY, place: 40, units, seq: None };
            assert_eq!(judge(&f.secrets, &wanted, &[&bytes], NOW), Verdict::Torn);
        }
    }
}

#[test]
fn slots_that_lead_nowhere_are_left_out() {
    let geometry = Geometry::with_segments_of(64, 64 << 10, 1).unwrap();
    let inside = Slot { tag: 3, units: 2, place: geometry.first_place(0) };
    let slots = [
        inside,
        Slot { tag: 4, ..inside },
        Slot { place: 0, ..inside },
        Slot { place: (1 << 33) - 1, ..inside },
        Slot { units: (1 << 15) - 1, ..inside },
    ];
    let mut words = [0u64; SLOTS];
    words.iter_mut().zip(slots).for_each(|(w, s)| *w = s.to_word().to_le());
    let bucket: [u8; UNIT] = words.as_bytes().try_into().unwrap();
    assert_eq!(candidates(&bucket, 3, &geometry).as_slice(), [inside]);
    assert!(candidates(&[0; UNIT], 0, &geometry).is_empty());
}
