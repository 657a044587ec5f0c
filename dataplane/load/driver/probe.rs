//! Is anybody there? One question before the load, so that a slip is said in words.

use super::DriverError;
use super::Target;
use crate::load::fault::Quote;
use crate::memcached::udp::{FrameHeader, HEADER_BYTES};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use zerocopy::IntoBytes;

const QUESTION: &[u8] = b"version\r\n";
const TRIES: u16 = 3;
const PATIENCE: Duration = Duration::from_millis(700);
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// What the server calls itself.
pub(super) fn version(target: &Target) -> Result<String, DriverError> {
    match target {
        Target::Udp(address) => udp(target, *address),
        Target::Tcp(address) => tcp(target, *address),
    }
}

/// A socket that speaks with one peer.
pub(super) fn udp_socket(peer: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket)
}

/// A connection without delay.
pub(super) fn tcp_connection(target: &Target, peer: SocketAddr) -> Result<TcpStream, DriverError> {
    let stream = TcpStream::connect_timeout(&peer, CONNECT_PATIENCE).map_err(|e| failed(target, e))?;
    stream.set_nodelay(true).map_err(DriverError::Socket)?;
    Ok(stream)
}

/// The error of a system call that speaks with the server.
pub(super) fn failed(target: &Target, error: std::io::Error) -> DriverError {
    match error.kind() {
        ErrorKind::ConnectionRefused => DriverError::Refused(*target),
        ErrorKind::TimedOut => DriverError::Silent(*target),
        _ => DriverError::Connection { target: *target, source: error },
    }
}

fn udp(target: &Target, address: SocketAddr) -> Result<String, DriverError> {
    let socket = udp_socket(address).map_err(|e| failed(target, e))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(DriverError::Socket)?;
    let mut bytes = [0; 2048];
    for id in 1..=TRIES {
        let header = FrameHeader { request_id: id.into(), datagrams: 1.into(), ..FrameHeader::default() };
        socket.send(&[header.as_bytes(), QUESTION].concat()).map_err(|e| failed(target, e))?;
        match socket.recv(&mut bytes) {
            Ok(n) => return answer(target, bytes[..n].get(HEADER_BYTES..).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(failed(target, error)),
        }
    }
    Err(DriverError::Silent(*target))
}

fn tcp(target: &Target, address: SocketAddr) -> Result<String, DriverError> {
    let mut stream = tcp_connection(target, address)?;
    stream.set_read_timeout(Some(CONNECT_PATIENCE)).map_err(DriverError::Socket)?;
    stream.write_all(QUESTION).map_err(|e| failed(target, e))?;
    let (mut said, mut bytes) = (vec![], [0; 2048]);
    while !said.contains(&b'\n') && said.len() < bytes.len() {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => said.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(DriverError::Silent(*target));
            }
            Err(error) => return Err(failed(target, error)),
        }
    }
    answer(target, &said)
}

fn answer(target: &Target, said: &[u8]) -> Result<String, DriverError> {
    let version = said.strip_prefix(b"VERSION ").and_then(|rest| rest.strip_suffix(b"\r\n"));
    let version = version.and_then(|text| std::str::from_utf8(text).ok());
    match version {
        Some(version) => Ok(version.chars().filter(|c| !c.is_control()).collect()),
        None => Err(DriverError::NotMemcached { target: *target, said: Quote::new(said) }),
    }
}
