//! A registered region: an arena with keys.

use super::{Access, Arena, Window};
use crate::types::{Lkey, Rkey};
use crate::wr::{RemoteSlice, RemoteWord};
use std::sync::Arc;

/// Registered memory. Clones share the registration; it ends with the last one, and the arena after it.
#[derive(Clone, Debug)]
pub struct Region {
    // Dropped in this order: the registration, then the memory.
    _registration: Arc<dyn Send + Sync + std::fmt::Debug>,
    arena: Arena,
    access: Access,
    lkey: Lkey,
    rkey: Rkey,
}

impl Region {
    /// Made by a transport when it has registered `arena`; dropping `registration` must end the registration.
    pub fn new(
        arena: Arena,
        access: Access,
        lkey: Lkey,
        rkey: Rkey,
        registration: Arc<dyn Send + Sync + std::fmt::Debug>,
    ) -> Self {
        Region { _registration: registration, arena, access, lkey, rkey }
    }

    /// The memory.
    pub fn window(&self) -> Window {
        self.arena.window()
    }

    /// What was granted.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The key for local use.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// The key for peers; tell it only to those who may use it.
    pub fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// `len` bytes from `offset` as a peer names them; `None` if they reach outside.
    pub fn slice(&self, offset: usize, len: u32) -> Option<RemoteSlice> {
        let w = self.window().sub(offset, len as usize)?;
        Some(RemoteSlice { addr: w.addr(), rkey: self.rkey, len })
    }

    /// The word at `offset` as a peer names it; `None` if it reaches outside or is not aligned.
    pub fn word(&self, offset: usize) -> Option<RemoteWord> {
        let w = self.window().sub(offset, 8)?;
        w.addr().is_multiple_of(8).then(|| RemoteWord { addr: w.addr(), rkey: self.rkey })
    }
}
