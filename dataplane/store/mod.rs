//! The store of the key-value service.
//!
//! Gateways read a memory node's items while its one writer changes them, and nobody locks anything. What keeps that right
//! is a set of rules; `model` is those rules as a program, small enough to try millions of schedules, with a checker that
//! looks for one order of events that explains what every client saw. It came before the store and stays its yardstick.
//!
//! What the model taught, beyond the rules as they were first written down:
//!
//! - **A lookup is one epoch, not each READ.** A place is cut again only when no *lookup* (buckets, then item) that began
//!   before its slot was cleared is under way. Then an item that is read through its slot cannot change into another one
//!   under the reader's hands, and no checksum is needed for that; a checksum guards against what the rules do not cover.
//! - **Mutations wait for GETs, too.** In a gateway worker a mutation waits for earlier GETs of its key, not only the other
//!   way round: otherwise a GET that has to look again sees the value of a request its client sent later.
//! - **Expired means expired when the lookup began.** An item that was alive at its beginning and is past its time at the end
//!   may have been replaced in between: the lookup is done again.
//! - **"Not found" needs the membership.** A gateway that misses a key also reads the node's generation, in the same doorbell
//!   and behind the buckets; a node writes its new generation before it takes keys away.
//! - **A membership is used when every node serves exactly it.** An answer with a newer generation is no consent: that node
//!   dropped other keys. A node keeps its generation through a restart.

pub mod model;
