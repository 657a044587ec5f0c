//! One end of a veth pair as a packet socket: frames arrive in memory shared with the kernel, and leave in bursts of one
//! system call.
#![allow(unsafe_code)] // reason: packet sockets need libc.

use super::slab::{SlabBuf, SlabPool};
use rdma_engine::buf::{Buf, Egress, Pool};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Frames of one burst.
const BURST: usize = 64;
/// Bytes of a slot of the ring: a frame of 4200 bytes and the kernel's header.
const SLOT: usize = 8192;
const SLOTS: usize = 1024;
const SLOTS_OF_BLOCK: usize = 16;

/// The socket, its ring, and frames waiting for the next burst.
pub(crate) struct Wire {
    socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
    outgoing: Vec<SlabBuf>,
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(socket: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
    // SAFETY: pointer and length of a value that outlives the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, value, len) };
    checked(set).map(drop)
}

impl Wire {
    /// On this interface.
    pub(crate) fn open(interface: &str) -> io::Result<Wire> {
        let index = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
        // SAFETY: no pointers.
        let fd = checked(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: just opened, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as i32))?;
        set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        let shape = libc::tpacket_req {
            tp_block_size: (SLOT * SLOTS_OF_BLOCK) as u32,
            tp_block_nr: (SLOTS / SLOTS_OF_BLOCK) as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set(&socket, libc::PACKET_RX_RING, &shape)?;
        let ring = map(&socket)?;
        bind(&socket, index.trim().parse().map_err(io::Error::other)?)?;
        Ok(Wire { socket, ring, next: 0, outgoing: Vec::with_capacity(BURST) })
    }

    /// Hands up to a burst of frames to `take`.
    pub(crate) fn receive(&mut self, pool: &SlabPool, mut take: impl FnMut(SlabBuf)) {
        for _ in 0..BURST {
            // SAFETY: a slot of the ring, which is mapped for as long as the process lives.
            let slot = unsafe { self.ring.add(self.next * SLOT) };
            let header = slot.cast::<libc::tpacket2_hdr>();
            // SAFETY: the status is an aligned word that the kernel and we hand to each other.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return;
            }
            let mut frame = pool.alloc().expect("a buffer");
            // SAFETY: the slot is ours until its status says otherwise, and the kernel keeps frames inside of slots.
            let bytes = unsafe {
                let (at, len) = ((*header.as_ptr()).tp_mac, (*header.as_ptr()).tp_snaplen);
                std::slice::from_raw_parts(slot.as_ptr().add(at.into()), len as usize)
            };
            frame.append(bytes.len()).expect("room").copy_from_slice(bytes);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % SLOTS;
            take(frame);
        }
    }

    /// Sends what waits. What the interface does not take is lost, as on any wire.
    pub(crate) fn send(&mut self) {
        let mut at = 0;
        while at < self.outgoing.len() {
            let sent = self.send_from(at);
            if sent <= 0 {
                break;
            }
            at += sent as usize;
        }
        self.outgoing.clear();
    }

    fn send_from(&self, at: usize) -> i32 {
        // SAFETY: all-zero messages and vectors are values.
        let mut vectors: [libc::iovec; BURST] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        let frames = &self.outgoing[at..];
        for ((frame, vector), message) in frames.iter().zip(&mut vectors).zip(&mut messages) {
            let bytes = frame.first();
            (vector.iov_base, vector.iov_len) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vector, 1);
        }
        // SAFETY: so many messages, each with a vector that points to a frame, all of which outlive the call.
        unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), frames.len() as u32, 0) }
    }
}

impl Egress<SlabBuf> for Wire {
    #[inline]
    fn push(&mut self, frame: SlabBuf) -> Result<(), SlabBuf> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.outgoing.push(frame);
        Ok(())
    }

    #[inline]
    fn room(&self) -> usize {
        BURST - self.outgoing.len()
    }
}

fn map(socket: &OwnedFd) -> io::Result<NonNull<u8>> {
    let (rights, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
    // SAFETY: a new mapping wherever the kernel likes.
    let ring = unsafe { libc::mmap(std::ptr::null_mut(), SLOT * SLOTS, rights, libc::MAP_SHARED, fd, 0) };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(ring).expect("a mapping is somewhere").cast())
}

fn bind(socket: &OwnedFd, index: i32) -> io::Result<()> {
    // SAFETY: an all-zero sockaddr_ll is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
    address.sll_ifindex = index;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: pointer and length of a value that outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    checked(bound).map(drop)
}
