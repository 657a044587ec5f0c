//! Shared receive queues.

use crate::wr::{RecvWr, Refusal, Refused};
use std::collections::VecDeque;

/// Receives that any queue pair on it may take. Its depth bounds all that was posted and has not been polled again.
#[derive(Debug)]
pub(crate) struct Srq<B> {
    waiting: VecDeque<RecvWr<B>>,
    depth: usize,
    /// Posted and not yet given back by `poll`.
    outstanding: usize,
    /// Below so many waiting receives an event is due, once; 0 for none.
    limit: usize,
}

impl<B> Srq<B> {
    pub(crate) fn new(depth: usize) -> Self {
        Srq { waiting: VecDeque::with_capacity(depth), depth, outstanding: 0, limit: 0 }
    }

    pub(crate) fn post(&mut self, wr: RecvWr<B>) -> Result<(), Refused<RecvWr<B>>> {
        if self.outstanding == self.depth {
            return Err(Refused { wr, why: Refusal::Full });
        }
        self.outstanding += 1;
        self.waiting.push_back(wr);
        Ok(())
    }

    /// Receives it would take now.
    pub(crate) fn room(&self) -> usize {
        self.depth - self.outstanding
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<RecvWr<B>> {
        self.waiting.pop_front()
    }

    /// One of its receives was given back.
    pub(crate) fn collected(&mut self) {
        self.outstanding -= 1;
    }

    /// Arms the limit event.
    pub(crate) fn arm_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// True, once, when fewer receives wait than the armed limit says.
    pub(crate) fn fell_below_limit(&mut self) -> bool {
        let below = self.waiting.len() < self.limit;
        if below {
            self.limit = 0;
        }
        below
    }
}
