use proptest::collection::vec;
use proptest::prelude::*;

use super::slicing::{fold, fold_all};
use super::{AFTER_ONES, IcrcBuilder};

/// The definition: bit by bit.
fn by_definition(mut state: u32, bytes: &[u8]) -> u32 {
    for &byte in bytes {
        state ^= u32::from(byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { state >> 1 ^ 0xEDB8_8320 } else { state >> 1 };
        }
    }
    state
}

#[test]
fn the_starting_state_is_that_of_eight_bytes_of_ones() {
    assert_eq!(by_definition(u32::MAX, &[0xFF; 8]), AFTER_ONES);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn tables_and_simd_follow_the_definition(
        state in any::<u32>(),
        bytes in vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let expected = by_definition(state, &bytes);
        prop_assert_eq!(fold_all(state, &bytes), expected);
        let (a, b) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut builder = IcrcBuilder(state);
        builder.update(a);
        builder.update(b);
        prop_assert_eq!(builder.0, expected);
    }

    #[test]
    fn blocks_fold_at_once(state in any::<u32>(), bytes in any::<[u8; 12]>()) {
        prop_assert_eq!(fold(state, &bytes), by_definition(state, &bytes));
    }
}
