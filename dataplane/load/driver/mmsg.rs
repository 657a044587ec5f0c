//! Many datagrams in one system call.

#![allow(unsafe_code)] // recvmmsg and sendmmsg, which no safe crate in use has both of.

use crate::load::request::Request;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Datagrams of one call.
pub(super) const BATCH: usize = 32;
/// Bytes of the longest datagram.
const DATAGRAM_BYTES: usize = 65_536;

/// Room for datagrams that arrive.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    lengths: [usize; BATCH],
}

impl Inbox {
    pub(super) fn new() -> Self {
        Inbox { bytes: vec![0; BATCH * DATAGRAM_BYTES].into_boxed_slice(), lengths: [0; BATCH] }
    }

    /// Takes what has arrived: how many datagrams, 0 if none waits.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: plain numbers and pointers, for which all zeros is a value.
        let (mut pieces, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let places = self.bytes.chunks_exact_mut(DATAGRAM_BYTES);
        for ((place, piece), message) in places.zip(&mut pieces).zip(&mut messages) {
            *piece = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the headers point to buffers that live and that nobody else uses during the call.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let n = count(n)?;
        for (length, message) in self.lengths.iter_mut().zip(&messages[..n]) {
            *length = message.msg_len as usize;
        }
        Ok(n)
    }

    /// The datagram of this number.
    pub(super) fn datagram(&self, index: usize) -> &[u8] {
        &self.bytes[index * DATAGRAM_BYTES..][..self.lengths[index]]
    }
}

/// 0 where the call would have to wait.
fn count(returned: libc::c_int) -> io::Result<usize> {
    match usize::try_from(returned) {
        Ok(n) => Ok(n),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Datagrams on their way to a socket, oldest first.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Box<[u8]>,
    stride: usize,
    lengths: [usize; BATCH],
    /// Those from `first` to `end` wait.
    first: usize,
    end: usize,
}

impl Outbox {
    /// Room for a batch of datagrams of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        let bytes = vec![0; BATCH * longest].into_boxed_slice();
        Outbox { bytes, stride: longest, lengths: [0; BATCH], first: 0, end: 0 }
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// True if there is no room until something is sent.
    pub(super) fn is_full(&self) -> bool {
        self.end == BATCH
    }

    /// Adds a request.
    pub(super) fn push(&mut self, request: &Request) {
        let n = request.len();
        request.write(0..n, &mut self.bytes[self.end * self.stride..][..n]);
        self.lengths[self.end] = n;
        self.end += 1;
    }

    /// Sends what the socket takes: how many datagrams.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: plain numbers and pointers, for which all zeros is a value.
        let (mut pieces, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let waiting = self.first..self.end;
        for ((index, piece), message) in waiting.clone().zip(&mut pieces).zip(&mut messages) {
            let place = &mut self.bytes[index * self.stride..][..self.lengths[index]];
            *piece = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `waiting.len()` headers point to datagrams that live during the call.
        let n = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                waiting.len() as u32,
                libc::MSG_DONTWAIT,
            )
        };
        let n = count(n)?;
        self.first += n;
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Call, Op};
    use rdma_engine::types::Time;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn datagrams_go_out_and_come_in_together() {
        let pair = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        pair[0].connect(pair[1].local_addr().unwrap()).unwrap();
        let (mut outbox, mut inbox) = (Outbox::new(100), Inbox::new());
        assert_eq!(inbox.receive(pair[1].as_fd()).unwrap(), 0);
        let speech = crate::load::LoadSettings::default().speech();
        for key in 0..5 {
            let call = Call { key, op: Op::Get { floor: 0 }, due: Time(0), retries: 0, measured: false };
            outbox.push(&speech.request(&call, Some(key as u16)));
        }
        assert_eq!(outbox.send(pair[0].as_fd()).unwrap(), 5);
        assert!(outbox.is_empty() && !outbox.is_full());
        assert_eq!(inbox.receive(pair[1].as_fd()).unwrap(), 5);
        for key in 0..5 {
            assert_eq!(inbox.datagram(key)[8..], *format!("get k-------{key:08x}\r\n").as_bytes());
        }
    }
}
