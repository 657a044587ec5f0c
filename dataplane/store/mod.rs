//! The store of the key-value service.
//!
//! Gateways read a memory node's items while its one writer changes them, and nobody locks anything. What keeps that right
//! is a set of rules; `model` is those rules as a program, small enough to try millions of schedules, with a checker that
//! looks for one order of events that explains what every client saw. It came before the store and stays its yardstick.
//!
//! | file | what it holds | whose |
//! |---|---|---|
//! | `geometry` | where things are in an arena of any size, which buckets a key has | both |
//! | `layout` | superblock, buckets and slots, item headers, byte for byte | both |
//! | `seal` | the keyed hash behind buckets and seals | both |
//! | `writer` | mutations, one after the other | node |
//! | `sweep` | `flush_all`, a new membership, expiry: through all buckets, some at a time | node |
//! | `room`, `evict` | places ahead of demand, who has to go | node |
//! | `arena`, `index`, `region` | books of places, buckets, stores to registered memory | node |
//! | `reclaim` | epochs: when a dead place may be used again | node |
//! | `reader` | what the bytes of a READ are worth | gateway |
//! | `locations` | where items were last seen, which uses to tell | gateway |
//!
//! # Rules
//!
//! 1. **Order of a mutation.** [`Writer::set`] writes the new item while nothing leads to it, marks the old one dead, publishes
//!    the new one's slot, retires the old place, and returns: only then is anything acknowledged. Whatever ends an item
//!    without a successor (DELETE, eviction, expiry, sweeps) marks it dead, clears its slot, retires its place.
//! 2. **An item's place is part of its seal**, with its sequence, lengths, flags, CAS unique, key and value. State word and expiry are
//!    outside it; they are the only words of an item that ever change, each by one store of eight bytes.
//! 3. **A dead place is used again only when every gateway's oldest lookup is younger than the death** (`reclaim`), or its READ
//!    queue pair is destroyed. A segment is cut anew only when all its places are free by that.
//! 4. **A key stays in its slot.** An overwritten key keeps it; a new key in two full buckets costs an old one its life.
//! 5. **`flush_all` is over when its sweep is.** No cached location can hit after that.
//! 6. **First the generation, then what it takes away** ([`Writer::begin_join`]).
//! 7. **A start is an epoch of its own**: secrets are drawn anew, so old items have no valid seal; buckets are cleared; sequences
//!    and CAS uniques begin elsewhere.
//! 8. **Expiry goes by the node's clock.** What has expired never comes back, not by a touch either.
//!
//! # Memory order
//!
//! The writer is one thread. Readers are network adapters (which read cache lines coherently, in any order within a READ) or
//! threads of a transport in software. Three things are needed, and nothing else:
//!
//! - *An aligned store of eight bytes is seen whole or not at all.* Slots, state words, expiries and generations are such stores. CPUs
//!   promise it for themselves; an adapter reads whole cache lines, and a word lies in one.
//! - *Who sees a published word sees everything stored before it.* Those stores are `Release` (`publish_word` in `region`): an item
//!   before its state, its state before its slot, the dead mark before the slot, the generation before any dead mark that follows.
//!   On x86 ordinary stores become visible in program order, to devices too, and `Release` only keeps the compiler from
//!   moving them; the C library ends copies with streaming stores by a fence, and what follows a string copy is ordered after
//!   it. Elsewhere `Release` is a store-release, which orders for CPUs and for adapters in their coherence domain; only
//!   x86 is tested.
//! - *A lookup reads an item after the bucket that led to it.* The item's READ is posted when the bucket's has completed, so the item
//!   is read after the slot was seen. A remembered place needs no order at all: one READ brings state, sequence and seal.
//!
//! Within one READ lines come in any order, so an item may be read half before and half after a change. Dead marks make no
//! difference to that: the item was the key's value when its first line was read. A reuse cannot come in between by rule 3; should
//! it do so all the same, the seal fails.
//!
//! # What the model taught, beyond the rules as they were first written down
//!
//! - **A lookup is one epoch, not each READ.** A place is cut again only when no *lookup* (buckets, then item) that began
//!   before its slot was cleared is under way. Then an item that is read through its slot cannot change into another one
//!   under the reader's hands, and no checksum is needed for that; a checksum guards against what the rules do not cover.
//! - **Mutations wait for GETs, too.** In a gateway worker a mutation waits for earlier GETs of its client and key, not only the
//!   other way round: otherwise a GET that has to look again sees the value of a request its client sent later.
//! - **Clients need not wait for each other**, and a location may be kept while a mutation of its key is under way: the dead mark
//!   comes before the acknowledgement, so who reads there afterwards sees that the item is gone.
//! - **Expired means expired when the lookup began.** An item that was alive at its beginning and is past its time at the end
//!   may have been replaced in between: the lookup is done again.
//! - **"Not found" needs the membership.** A gateway that misses a key also reads the node's generation, in the same doorbell
//!   and behind the buckets; a node writes its new generation before it takes keys away.
//! - **A membership is used when every node serves exactly it.** An answer with a newer generation is no consent: that node
//!   dropped other keys. A node keeps its generation through a restart.
//!
//! `tests/race.rs` holds the real writer and reader against these rules, one store and one READ of a unit at a time.

mod arena;
mod evict;
pub mod geometry;
mod index;
pub mod layout;
pub mod locations;
pub mod model;
pub mod reader;
pub mod reclaim;
mod region;
mod room;
pub mod seal;
mod sweep;
#[cfg(test)]
mod tests;
mod writer;

pub use sweep::Sweep;
pub use writer::{Counts, Item, Refused, Write, Writer, WrongSize, write_superblock};
