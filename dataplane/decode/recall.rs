//! The last packets of an input that cannot be read twice, for the story told at its end.

use std::collections::VecDeque;

use super::packet_view::View;

/// Most packets remembered: some 15 MB. A message rarely takes so many from its first packet to its answer, those of
/// other conversations in between included.
const MOST: usize = 1 << 16;

/// A ring of packets.
#[derive(Default)]
pub(super) struct Recall {
    views: VecDeque<View>,
    /// The last frame that had to make room.
    pub(super) forgotten: Option<u64>,
}

impl Recall {
    pub(super) fn push(&mut self, view: View) {
        if self.views.len() == MOST {
            self.forgotten = self.views.pop_front().map(|view| view.moment.frame);
        }
        self.views.push_back(view);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &View> {
        self.views.iter()
    }
}
