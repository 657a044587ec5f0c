//! Flows over UDP: a socket each.

use super::mmsg::{Inbox, Outbox};
use super::probe::{failed, udp_socket};
use super::wait::{Clock, Sleeper};
use super::{DriverError, Flows, Target};
use crate::load::caller::Caller;
use crate::load::datagram::Datagrams;
use crate::memcached::udp::FrameHeader;
use rdma_engine::types::Time;
use rustix::net::sockopt;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use zerocopy::FromBytes;

/// Room that the kernel is asked for in front of each socket: replies wait there while we do something else.
const SOCKET_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Flow {
    socket: UdpSocket,
    outbox: Outbox,
}

/// One thread's flows.
#[derive(Debug)]
pub(super) struct UdpFlows {
    client: Datagrams,
    flows: Vec<Flow>,
    inbox: Inbox,
    target: Target,
}

impl UdpFlows {
    pub(super) fn new(
        caller: Caller,
        target: &Target,
        address: SocketAddr,
        flows: u16,
        depth: u32,
        sleeper: &Sleeper,
    ) -> Result<Self, DriverError> {
        let longest = caller.settings().request_bytes_max();
        let flow = |_| {
            let socket = udp_socket(address)?;
            // As much as we may: beyond the system's limit only the privileged.
            if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
                sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
            }
            sleeper.add(&socket)?;
            Ok(Flow { socket, outbox: Outbox::new(longest) })
        };
        let made: Result<Vec<_>, std::io::Error> = (0..flows).map(flow).collect();
        Ok(UdpFlows {
            client: Datagrams::new(caller, flows, depth),
            flows: made.map_err(DriverError::Socket)?,
            inbox: Inbox::new(),
            target: *target,
        })
    }

    fn receive(&mut self, number: u16, clock: Clock) -> std::io::Result<bool> {
        let socket = &self.flows[usize::from(number)].socket;
        let n = self.inbox.receive(socket.as_fd())?;
        let now = clock.now();
        for index in 0..n {
            match FrameHeader::read_from_prefix(self.inbox.datagram(index)) {
                Ok((header, text)) => {
                    self.client.receive(now, number, &header, text.len(), std::iter::once(text));
                }
                Err(_) => self.client.caller_mut().stranger(),
            }
        }
        Ok(n > 0)
    }

    fn send(&mut self, number: u16, clock: Clock) -> std::io::Result<bool> {
        let Flow { socket, outbox } = &mut self.flows[usize::from(number)];
        let now = clock.now();
        while !outbox.is_full()
            && let Some(request) = self.client.next(now, number)
        {
            outbox.push(&request);
        }
        Ok(!outbox.is_empty() && outbox.send(socket.as_fd())? > 0)
    }
}

impl Flows for UdpFlows {
    fn turn(&mut self, clock: Clock) -> Result<bool, DriverError> {
        self.client.tick(clock.now());
        let mut any = false;
        for number in 0..self.flows.len() as u16 {
            let received = self.receive(number, clock).map_err(|e| failed(&self.target, e))?;
            let sent = self.send(number, clock).map_err(|e| failed(&self.target, e))?;
            any |= received | sent;
        }
        Ok(any)
    }

    fn next_timer(&self, now: Time) -> Time {
        // What a full socket did not take is tried again soon: nothing tells us when it has room.
        let waits = self.flows.iter().any(|flow| !flow.outbox.is_empty());
        if waits { now } else { self.client.next_timer(now) }
    }

    fn caller(&mut self) -> &mut Caller {
        self.client.caller_mut()
    }
}
