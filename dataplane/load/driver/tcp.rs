//! Flows over TCP: a connection each.

use super::probe::{failed, tcp_connection};
use super::wait::{Clock, Sleeper};
use super::{DriverError, Flows, Target};
use crate::load::caller::Caller;
use crate::load::stream::Streams;
use rdma_engine::types::Time;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Requests are added to what waits to be written up to this many bytes.
const WRITE_BYTES: usize = 128 << 10;

#[derive(Debug)]
struct Flow {
    stream: TcpStream,
    /// Bytes to write, and how many of them are written.
    out: Vec<u8>,
    written: usize,
    /// The connection takes no more for now.
    is_blocked: bool,
}

/// One thread's flows.
#[derive(Debug)]
pub(super) struct TcpFlows {
    client: Streams,
    flows: Vec<Flow>,
    bytes: Box<[u8]>,
    target: Target,
    address: SocketAddr,
    /// A handle of its own to what wakes us, for connections made later.
    sleeper: Sleeper,
}

/// What became of a connection.
enum Step {
    Nothing,
    Something,
    Closed,
}

impl TcpFlows {
    pub(super) fn new(
        caller: Caller,
        target: &Target,
        address: SocketAddr,
        flows: u16,
        depth: u32,
        sleeper: &Sleeper,
    ) -> Result<Self, DriverError> {
        let longest = caller.settings().request_bytes_max();
        let mut made = TcpFlows {
            client: Streams::new(caller, flows, depth),
            flows: Vec::with_capacity(usize::from(flows)),
            bytes: vec![0; READ_BYTES].into_boxed_slice(),
            target: *target,
            address,
            sleeper: sleeper.handle().map_err(DriverError::Socket)?,
        };
        for _ in 0..flows {
            let stream = made.connect()?;
            let out = Vec::with_capacity(WRITE_BYTES + longest);
            made.flows.push(Flow { stream, out, written: 0, is_blocked: false });
        }
        Ok(made)
    }

    fn connect(&self) -> Result<TcpStream, DriverError> {
        let stream = tcp_connection(&self.target, self.address)?;
        stream.set_nonblocking(true).map_err(DriverError::Socket)?;
        self.sleeper.add(stream.as_fd()).map_err(DriverError::Socket)?;
        Ok(stream)
    }

    fn receive(&mut self, number: u16, clock: Clock) -> Result<Step, DriverError> {
        let flow = &mut self.flows[usize::from(number)];
        match flow.stream.read(&mut self.bytes) {
            Ok(0) => Ok(Step::Closed),
            Ok(n) => match self.client.receive(clock.now(), number, &self.bytes[..n]) {
                Ok(()) => Ok(Step::Something),
                Err(_) => Ok(Step::Closed),
            },
            Err(error) => self.trouble(error),
        }
    }

    /// What an error of a connection means.
    fn trouble(&self, error: std::io::Error) -> Result<Step, DriverError> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Step::Nothing),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                Ok(Step::Closed)
            }
            _ => Err(failed(&self.target, error)),
        }
    }

    fn send(&mut self, number: u16, clock: Clock) -> Result<Step, DriverError> {
        let flow = &mut self.flows[usize::from(number)];
        if flow.written == flow.out.len() {
            flow.out.clear();
            flow.written = 0;
            self.client.fill(clock.now(), number, WRITE_BYTES, &mut flow.out);
        }
        if flow.out.is_empty() {
            return Ok(Step::Nothing);
        }
        let step = match flow.stream.write(&flow.out[flow.written..]) {
            Ok(n) => {
                flow.written += n;
                Step::Something
            }
            Err(error) => self.trouble(error)?,
        };
        let flow = &mut self.flows[usize::from(number)];
        let is_blocked = flow.written < flow.out.len();
        if is_blocked != flow.is_blocked && !matches!(step, Step::Closed) {
            flow.is_blocked = is_blocked;
            self.sleeper.watch_writes(flow.stream.as_fd(), is_blocked).map_err(DriverError::Socket)?;
        }
        Ok(step)
    }

    /// Another connection in the place of one that is closed.
    fn reconnect(&mut self, number: u16) -> Result<(), DriverError> {
        self.client.closed(number);
        if self.client.caller().is_done() {
            return Ok(());
        }
        let stream = self.connect()?;
        let flow = &mut self.flows[usize::from(number)];
        flow.out.clear();
        (flow.stream, flow.written, flow.is_blocked) = (stream, 0, false);
        Ok(())
    }
}

impl Flows for TcpFlows {
    fn turn(&mut self, clock: Clock) -> Result<bool, DriverError> {
        let mut any = false;
        if let Some(silent) = self.client.tick(clock.now()) {
            self.reconnect(silent)?;
            any = true;
        }
        for number in 0..self.flows.len() as u16 {
            for step in [Self::receive, Self::send] {
                match step(self, number, clock)? {
                    Step::Nothing => {}
                    Step::Something => any = true,
                    Step::Closed => {
                        self.reconnect(number)?;
                        any = true;
                    }
                }
            }
        }
        Ok(any)
    }

    fn next_timer(&self, now: Time) -> Time {
        self.client.next_timer(now)
    }

    fn caller(&mut self) -> &mut Caller {
        self.client.caller_mut()
    }
}
