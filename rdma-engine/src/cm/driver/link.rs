//! One session on one TCP stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::super::frame::MAX_FRAME;
use super::super::session::Session;
use super::{Interest, SessionId};
use crate::types::Time;

/// Reads of one turn: a peer that sends without end does not keep the others waiting.
const READS_PER_TURN: usize = 4;
/// How long a finished session may take to hand over its last words.
const LINGER_NS: u64 = 500_000_000;

/// Where bytes are read into; one per listener or connector.
pub(super) type ReadBuffer = Box<[u8]>;

pub(super) fn read_buffer() -> ReadBuffer {
    vec![0; MAX_FRAME].into_boxed_slice()
}

pub(super) struct Link {
    pub(super) id: SessionId,
    pub(super) peer: SocketAddr,
    pub(super) session: Session,
    stream: TcpStream,
    /// Set when the session is over and its last words are on their way.
    lingers_until: Option<Time>,
    write_closed: bool,
    closed: bool,
}

impl Link {
    /// `stream` is nonblocking.
    pub(super) fn new(id: SessionId, peer: SocketAddr, session: Session, stream: TcpStream) -> Self {
        // Messages are small and answered: waiting for more bytes would only cost time. A failure
        // costs that time and nothing else.
        let _ = stream.set_nodelay(true);
        Link { id, peer, session, stream, lingers_until: None, write_closed: false, closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads, meets deadlines. What there is to send waits for [`Link::flush`].
    pub(super) fn receive(&mut self, now: Time, buffer: &mut ReadBuffer) {
        // Bytes that came while we slept count before the deadline that passed meanwhile.
        for _ in 0..READS_PER_TURN {
            if self.closed || !self.read(now, buffer) {
                break;
            }
        }
        self.session.handle_timeout(now);
        if self.lingers_until.is_some_and(|until| until <= now) {
            self.closed = true;
        }
    }

    /// True if there may be more.
    fn read(&mut self, now: Time, buffer: &mut ReadBuffer) -> bool {
        match self.stream.read(buffer) {
            Ok(0) => self.disconnect(None),
            // What comes after the end is read all the same: closing a socket with unread bytes
            // resets the connection, and our last words would be lost.
            Ok(count) => self.session.handle_bytes(now, &buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.disconnect(Some(error.kind())),
        }
        true
    }

    fn disconnect(&mut self, error: Option<ErrorKind>) {
        self.session.handle_disconnect(error);
        self.closed = true;
    }

    /// Sends what the stream takes.
    pub(super) fn flush(&mut self, now: Time) {
        while !self.closed && !self.session.poll_transmit().is_empty() {
            match self.stream.write(self.session.poll_transmit()) {
                Ok(count) => self.session.transmitted(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.disconnect(Some(error.kind())),
            }
        }
        if self.session.is_finished() {
            self.lingers_until.get_or_insert(now.after_ns(LINGER_NS));
            self.close_write();
        }
    }

    /// Tells the peer that nothing follows the last words.
    fn close_write(&mut self) {
        if !self.closed && !self.write_closed && self.session.poll_transmit().is_empty() {
            self.write_closed = true;
            self.closed = self.stream.shutdown(Shutdown::Write).is_err();
        }
    }

    pub(super) fn fd(&self) -> (BorrowedFd<'_>, Interest) {
        let write = !self.session.poll_transmit().is_empty();
        (self.stream.as_fd(), Interest { read: true, write })
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.lingers_until.into_iter().chain(self.session.poll_timeout()).min()
    }
}
