//! Which memory nodes share the keys: a list with a number, made by control and used by workers.

use super::ownership::Owners;

/// A list of memory nodes. A node keeps its place, by which links and partitions are numbered, from list to list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// Number of the list; a higher one takes the place of a lower one everywhere.
    pub generation: u64,
    /// Identity and place of each node, by identity: all gateways have them in the same order, however their files list them.
    nodes: Box<[(u64, u16)]>,
}

impl Members {
    /// The list with this number, of nodes with their places.
    pub fn new<'a>(generation: u64, nodes: impl IntoIterator<Item = (&'a str, u16)>) -> Self {
        let owners = Owners::default();
        let mut nodes: Vec<_> =
            nodes.into_iter().map(|(name, place)| (owners.identity(name), place)).collect();
        nodes.sort_unstable();
        Members { generation, nodes: nodes.into() }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True without nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The place of the node that owns `key`; 0 without nodes.
    #[inline]
    pub fn owner(&self, owners: &Owners, key: &[u8]) -> usize {
        let at = owners.owner(key, self.identities());
        self.nodes.get(at).map_or(0, |(_, place)| usize::from(*place))
    }

    /// Identities, in the order that nodes are told.
    pub fn identities(&self) -> impl ExactSizeIterator<Item = u64> {
        self.nodes.iter().map(|(identity, _)| *identity)
    }

    /// Which of the list the node at this place is.
    pub fn index(&self, place: usize) -> Option<usize> {
        self.nodes.iter().position(|(_, at)| usize::from(*at) == place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_names_makes_no_difference_and_places_stay() {
        let owners = Owners::default();
        let one = Members::new(3, [("a", 0), ("b", 1), ("c", 2)]);
        let other = Members::new(3, [("c", 1), ("a", 0), ("b", 2)]);
        assert!(one.identities().eq(other.identities()));
        for n in 0..1000 {
            let key = format!("key{n}");
            let (own, theirs) = (one.owner(&owners, key.as_bytes()), other.owner(&owners, key.as_bytes()));
            assert_eq!([0, 2, 1][own], theirs);
            assert_eq!(one.index(own), other.index(theirs));
        }
        assert_eq!((one.index(3), one.len(), one.is_empty()), (None, 3, false));
    }
}
