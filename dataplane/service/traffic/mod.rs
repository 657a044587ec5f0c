//! Traffic of our own: a source of many flows and a sink that verifies them.
//!
//! A null port makes one flow of zeros, which shows nothing about flows. The source makes up to millions, with sizes,
//! protocols and VLANs to choose; each frame carries its flow, its number in the flow and a checksum, so that the sink
//! can tell loss, order, duplication and corruption to the frame.

mod frame;
mod sink;
mod source;

pub use frame::{Addressing, MIN_FRAME, Proto, Shape, TAG_LEN, Tag};
pub use sink::{Sink, SinkSettings};
pub use source::{Source, SourceSettings};

#[cfg(test)]
mod tests;
