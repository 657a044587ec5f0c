//! Sockets the standard library does not have, for the tests.

#![allow(unsafe_code)] // Plain system calls.
#![allow(dead_code)] // Each binary uses some of it.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{io, mem};

/// Sends one Ethernet frame out of a kernel interface.
pub(crate) fn send_frame(interface: &str, frame: &[u8]) {
    let name = CString::new(interface).unwrap();
    // SAFETY: plain system calls on a socket of our own, with an address of the stated size.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        to.sll_halen = 6;
        let size = size_of_val(&to) as u32;
        let sent = libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size);
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
        libc::close(socket);
    }
}

/// Whether the descriptor becomes readable within ten seconds.
pub(crate) fn readable(fd: &impl AsRawFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, as stated.
    unsafe { libc::poll(&raw mut poll, 1, 10_000) == 1 }
}

/// A connected unix socket of type `SOCK_SEQPACKET`, which the standard library does not have.
pub(crate) struct SeqPacket(OwnedFd);

impl SeqPacket {
    pub(crate) fn connect(path: &Path) -> io::Result<SeqPacket> {
        // SAFETY: plain system calls on a socket of our own, with an address of the stated size.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let socket = OwnedFd::from_raw_fd(fd);
            let mut to: libc::sockaddr_un = mem::zeroed();
            to.sun_family = libc::AF_UNIX as u16;
            for (slot, byte) in to.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
                *slot = *byte as libc::c_char;
            }
            match libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size_of_val(&to) as u32) {
                0 => Ok(SeqPacket(socket)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    pub(crate) fn send(&self, text: &str) {
        // SAFETY: the bytes of `text`.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), text.as_ptr().cast(), text.len(), 0) };
        assert_eq!(sent, text.len() as isize);
    }

    pub(crate) fn receive(&self) -> String {
        let mut bytes = vec![0u8; 1 << 16];
        // SAFETY: a buffer of the stated size.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        bytes.truncate(usize::try_from(got).expect("an answer"));
        String::from_utf8(bytes).expect("text")
    }
}
