//! What can be done with one key, and what can come of it: plain data, the same for every dialect and transport.

use super::expiry::Exptime;

/// Something to do with one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Reads, and may change expiry and marks on the way.
    Fetch(Fetch),
    /// Puts a value.
    Store(Store<'a>),
    /// Removes, or marks as stale.
    Delete(Delete),
    /// Adds or subtracts.
    Arithmetic(Arithmetic),
}

impl Operation<'_> {
    /// Whether it changes the item whatever is found, so that only the owner of the key can do it.
    ///
    /// False for what a READ of the item answers. Two changes depend on what is found and are not counted: marking an item
    /// as fetched, which nobody can where items are read by RDMA, and the claim of a stale item, which a reader sees in the
    /// item's marks (stale and not yet claimed) and then sends to the owner.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        match self {
            Self::Fetch(fetch) => fetch.touch.is_some() || fetch.vivify.is_some() || fetch.recache.is_some(),
            Self::Store(_) | Self::Delete(_) | Self::Arithmetic(_) => true,
        }
    }
}

/// A part of a meta command that depends on its place among the flags: `T30 t` tells the new time to live, `t T30` the
/// one before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Step {
    /// No step.
    #[default]
    None = 0,
    /// Sets the expiry (`T`).
    Touch = 1,
    /// Sets the expiry of an item that was just made (`N`).
    Vivify = 2,
    /// Sees whether the item is about to expire (`R`).
    Recache = 3,
    /// Notes the time to live (`t`).
    Ttl = 4,
}

/// Steps in the order of their flags; each at most once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Steps(pub [Step; 4]);

impl Steps {
    /// Adds one behind the others; there is room for one of each kind.
    pub fn push(&mut self, step: Step) {
        if let Some(place) = self.0.iter_mut().find(|place| **place == Step::None) {
            *place = step;
        }
    }
}

/// How to read an item.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fetch {
    /// The value is wanted, not only what is known about it.
    pub value: bool,
    /// Mark as fetched, keep in the cache for longer.
    pub bump: bool,
    /// The key came in base64; an item made on the way remembers that.
    pub binary: bool,
    /// Who reads a stale item first is told to renew it. Commands of the text protocol know nothing of that.
    pub claim: bool,
    /// New expiry.
    pub touch: Option<Exptime>,
    /// Make an empty item that expires then, if there is none.
    pub vivify: Option<Exptime>,
    /// Who reads an item that expires before this is told to renew it.
    pub recache: Option<Exptime>,
    /// The order of the above.
    pub steps: Steps,
}

/// On what condition a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Always.
    #[default]
    Set = 0,
    /// If there is no item.
    Add = 1,
    /// If there is an item.
    Replace = 2,
    /// Behind the value of an item.
    Append = 3,
    /// In front of the value of an item.
    Prepend = 4,
    /// If the item is the one with this cas unique.
    Cas = 5,
}

/// How to store a value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Store<'a> {
    /// On what condition.
    pub mode: Mode,
    /// The client's flags.
    pub flags: u32,
    /// When it expires.
    pub exptime: Exptime,
    /// Cas unique of the item to replace; 0 is none.
    pub cas: u64,
    /// With [`Mode::Cas`]: a cas unique below the item's is taken too, and makes the item stale.
    pub accept_older: bool,
    /// The key came in base64.
    pub binary: bool,
    /// The value.
    pub value: &'a [u8],
}

/// How to delete.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Delete {
    /// Only the item with this cas unique.
    pub cas: Option<u64>,
    /// Keep it, mark it as stale.
    pub stale: bool,
    /// New expiry of a stale item.
    pub touch: Option<Exptime>,
}

/// How to count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Arithmetic {
    /// Subtract, and stop at 0; otherwise add, modulo 2^64.
    pub decrement: bool,
    /// How much.
    pub delta: u64,
    /// Only the item with this cas unique; 0 is any.
    pub cas: u64,
    /// Value of an item that is made because there is none.
    pub initial: u64,
    /// The key came in base64; an item made on the way remembers that.
    pub binary: bool,
    /// New expiry.
    pub touch: Option<Exptime>,
    /// Make an item that expires then, if there is none.
    pub vivify: Option<Exptime>,
    /// The order of the above.
    pub steps: Steps,
}

/// What an item remembers beside its value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bits {
    /// It was marked as stale.
    pub stale: bool,
    /// Somebody was told to renew it.
    pub claimed: bool,
    /// It was read before.
    pub fetched: bool,
    /// Its key came in base64.
    pub binary: bool,
}

/// An item that was found, as of the operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hit<'v> {
    /// The value, empty if it was not asked for.
    pub value: &'v [u8],
    /// Bytes of the value, asked for or not.
    pub size: u32,
    /// The client's flags.
    pub flags: u32,
    /// Cas unique.
    pub cas: u64,
    /// Seconds to live at the step that asks for it; `None` is for ever.
    pub ttl_s: Option<u32>,
    /// Seconds since it was last read or written.
    pub idle_s: u32,
    /// Its marks before the operation.
    pub bits: Bits,
    /// The client is told to renew it.
    pub won: bool,
}

/// A number after it was changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Number {
    /// The number.
    pub value: u64,
    /// Cas unique.
    pub cas: u64,
    /// Seconds to live at the step that asks for it; `None` is for ever.
    pub ttl_s: Option<u32>,
    /// The item was made by this operation.
    pub created: bool,
}

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'v> {
    /// The item was read.
    Hit(Hit<'v>),
    /// There is no such item.
    NotFound,
    /// The value was stored and has this cas unique.
    Stored {
        /// Cas unique.
        cas: u64,
    },
    /// The condition for storing was not met.
    NotStored,
    /// The item has another cas unique.
    Exists,
    /// The item was removed, or marked.
    Deleted,
    /// The number was changed.
    Number(Number),
    /// The value is no number.
    NonNumeric,
    /// There is no room.
    OutOfMemory,
}
