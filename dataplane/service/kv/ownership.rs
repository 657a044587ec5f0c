//! Which of several memory nodes a key belongs to: rendezvous hashing.
//!
//! Every node gets a weight from its identity and the key; the heaviest has the key. A node that comes takes its share from
//! all others, one that goes leaves its share to all others, and nothing else moves.

use crate::store::seal::Secret;

/// Spreads names and keys; the same for everybody.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    hash: Secret,
}

impl Default for Owners {
    fn default() -> Self {
        // Digits of pi: nothing is hidden here, everybody has to agree.
        Owners { hash: Secret::new([0x2432_F6A8_885A_308D, 0x3131_98A2_E037_0734]) }
    }
}

impl Owners {
    /// A node's identity, from its name in the configuration.
    pub fn identity(&self, name: &str) -> u64 {
        self.hash.hash(name.as_bytes())
    }

    /// The index of the node that owns `key`; 0 when there is only one.
    pub fn owner(&self, key: &[u8], nodes: impl ExactSizeIterator<Item = u64>) -> usize {
        if nodes.len() < 2 {
            return 0;
        }
        let key = self.hash.hash(key);
        let weight = |identity: u64| mix(identity ^ key);
        nodes.enumerate().max_by_key(|(_, identity)| weight(*identity)).map_or(0, |(index, _)| index)
    }
}

/// The finalizer of a good hash: every bit of the input moves half of the output's.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(names: &[&str], keys: u32) -> Vec<usize> {
        let owners = Owners::default();
        let ids: Vec<u64> = names.iter().map(|n| owners.identity(n)).collect();
        (0..keys).map(|k| owners.owner(format!("key{k}").as_bytes(), ids.iter().copied())).collect()
    }

    #[test]
    fn shares_are_even_and_only_a_share_moves() {
        let (three, four) = (owners(&["a", "b", "c"], 30_000), owners(&["a", "b", "c", "d"], 30_000));
        for n in 0..3 {
            let share = three.iter().filter(|o| **o == n).count();
            assert!((9_500..10_500).contains(&share), "{share}");
        }
        let moved = three.iter().zip(&four).filter(|(a, b)| a != b);
        assert!(moved.clone().all(|(_, b)| *b == 3), "keys move to the newcomer only");
        let moved = moved.count();
        assert!((7_000..8_000).contains(&moved), "{moved}");
        let order = owners(&["c", "a", "b"], 30_000);
        assert!(
            three.iter().zip(&order).all(|(a, b)| [1, 2, 0][*a] == *b),
            "the order of names is no matter"
        );
    }

    #[test]
    fn one_node_has_everything() {
        assert!(owners(&["a"], 100).iter().all(|o| *o == 0));
    }
}
