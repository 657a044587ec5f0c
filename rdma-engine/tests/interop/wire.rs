//! The far end of rxe0's wire as a raw socket, and what befalls frames on the way.
#![allow(unsafe_code)] // reason: packet sockets need libc.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    ToKernel,
    ToOwn,
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Passes,
    IsLost,
    /// Comes after the next one of its way, or when none comes for a while.
    IsLate,
    ComesTwice,
    /// One of its last bytes is another.
    IsCorrupt,
}

/// Decides about each frame.
pub type Judge = Box<dyn FnMut(Way, &[u8]) -> Fate>;

/// How long a late frame waits for another one.
const LATE: Duration = Duration::from_millis(2);
const LONGEST_FRAME: usize = 4400;

pub struct Wire {
    socket: File,
    judge: Judge,
    /// Late frames by way, with the time they go at the latest.
    late: [Option<(Vec<u8>, Instant)>; 2],
    /// Arrived, and not yet asked for.
    arrived: VecDeque<Vec<u8>>,
    /// Everything that is put on the wire or taken from it, after its fate, as a capture file.
    capture: Option<File>,
    start: Instant,
}

/// Magic number, version 2.4, zone, accuracy, longest frame, Ethernet; little-endian.
const CAPTURE_HEADER: [u32; 6] = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65_535, 1];

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn capture() -> Option<File> {
    let mut file = File::create(std::env::var_os("ISTHMUS_INTEROP_CAPTURE")?).expect("a capture file");
    file.write_all(&words(&CAPTURE_HEADER)).expect("written");
    Some(file)
}

impl Wire {
    /// On this interface, with the kernel's buffers as large as bursts need.
    pub fn open(interface: &str) -> io::Result<Wire> {
        let index = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
        fs::write("/proc/sys/net/core/rmem_max", "33554432")?;
        let index: i32 = index.trim().parse().map_err(io::Error::other)?;
        let socket = packet_socket(index)?;
        let judge: Judge = Box::new(|_, _| Fate::Passes);
        Ok(Wire {
            socket,
            judge,
            late: [None, None],
            arrived: VecDeque::new(),
            capture: capture(),
            start: Instant::now(),
        })
    }

    /// From now on frames fare as `judge` says.
    pub fn judge(&mut self, judge: Judge) {
        self.judge = judge;
    }

    /// Frames of our own.
    pub fn send(&mut self, frame: Vec<u8>) {
        self.carry(Way::ToKernel, frame);
    }

    /// The next frame of the kernel's.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        self.release_late();
        if self.arrived.is_empty() {
            let mut frame = vec![0; LONGEST_FRAME];
            match self.socket.read(&mut frame) {
                Ok(len) => {
                    frame.truncate(len);
                    self.carry(Way::ToOwn, frame);
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => panic!("the wire: {e}"),
            }
        }
        self.arrived.pop_front()
    }

    fn carry(&mut self, way: Way, mut frame: Vec<u8>) {
        match (self.judge)(way, &frame) {
            Fate::Passes => {}
            Fate::IsLost => return,
            Fate::IsLate => {
                if let Some((earlier, _)) = self.late[way as usize].replace((frame, Instant::now() + LATE)) {
                    self.put(way, earlier);
                }
                return;
            }
            Fate::ComesTwice => self.put(way, frame.clone()),
            Fate::IsCorrupt => {
                let at = frame.len() - 6;
                frame[at] ^= 0x10;
            }
        }
        self.put(way, frame);
        if let Some((late, _)) = self.late[way as usize].take() {
            self.put(way, late);
        }
    }

    fn release_late(&mut self) {
        for way in [Way::ToKernel, Way::ToOwn] {
            let due = self.late[way as usize].take_if(|(_, at)| Instant::now() >= *at);
            if let Some((frame, _)) = due {
                self.put(way, frame);
            }
        }
    }

    /// Puts a frame on the wire, or takes it from there, whatever its fate should be.
    pub fn put(&mut self, way: Way, frame: Vec<u8>) {
        if let Some(file) = &mut self.capture {
            let (at, len) = (self.start.elapsed(), frame.len() as u32);
            let header = words(&[at.as_secs() as u32, at.subsec_micros(), len, len]);
            file.write_all(&[header, frame.clone()].concat()).expect("written");
        }
        match way {
            Way::ToOwn => self.arrived.push_back(frame),
            // A full queue loses it, as a wire may.
            Way::ToKernel => drop(self.socket.write(&frame)),
        }
    }
}

fn packet_socket(index: i32) -> io::Result<File> {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    let socket = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let room: i32 = 32 << 20;
    // SAFETY: an all-zero sockaddr_ll is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_protocol, address.sll_ifindex) = (libc::AF_PACKET as u16, all, index);
    // SAFETY: pointer and length of a value that outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const room).cast(),
            size_of::<i32>() as u32,
        )
    };
    // SAFETY: as above.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
    };
    if set != 0 || bound != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}
