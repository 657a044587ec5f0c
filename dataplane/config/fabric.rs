//! `[fabric]` and a node's own `fabric` table: the RDMA side.

use serde::{Deserialize, Serialize};

use super::Secret;

/// `[fabric]`. A node's own table has the same keys and wins key by key.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricKeys {
    /// What carries the messages.
    pub transport: Option<TransportKind>,
    /// Settings of `transport = "verbs"`.
    pub verbs: VerbsKeys,
    /// Settings of `transport = "soft"`.
    pub soft: SoftKeys,

    /// Address and TCP port on which the peer is awaited.
    pub listen: Option<String>,
    /// Address and TCP port of the peer; with `transport = "loopback"` the name of a node.
    pub connect: Option<String>,
    /// How the ends prove themselves to each other.
    pub auth: Option<AuthMode>,
    /// Pre-shared key.
    pub key: Option<Secret>,
    /// File that holds the pre-shared key.
    pub key_file: Option<String>,
    /// Networks that a peer may come from; everywhere by default (it still needs the key).
    pub allow: Option<Vec<String>>,
    /// Milliseconds that one connection attempt may take.
    pub connect_timeout_ms: Option<u32>,
    /// Milliseconds between two signs of life.
    pub keepalive_ms: Option<u32>,
    /// Milliseconds of silence after which the peer is lost; five signs of life by default.
    pub dead_after_ms: Option<u32>,
    /// First pause before a new attempt, in milliseconds; doubled up to `reconnect_max_ms`.
    pub reconnect_min_ms: Option<u32>,
    /// Longest pause between two attempts, in milliseconds.
    pub reconnect_max_ms: Option<u32>,

    /// Type of the queue pairs.
    pub qp: Option<QpKind>,
    /// Largest payload of one RoCE packet in bytes.
    pub pmtu: Option<u32>,
    /// Speed of the link in Gbit/s, for the sizing of the send queue and the line rate of congestion control.
    pub link_gbps: Option<f64>,
    /// Round-trip time to the peer in microseconds, for the sizing of the send queue.
    pub rtt_us: Option<f64>,
    /// Requests that one QP may have in flight.
    pub send_depth: Option<u32>,
    /// Receives that one QP (with `srq`, one worker) keeps posted.
    pub recv_depth: Option<u32>,
    /// Entries of a worker's completion queue.
    pub cq_depth: Option<u32>,
    /// Segments of one work request.
    pub max_sge: Option<u32>,
    /// Bytes that may be copied into a work request instead of being pointed to.
    pub inline: Option<u32>,
    /// Every how many requests a completion is asked for.
    pub signal_every: Option<u32>,
    /// Share one receive queue among the QPs of a worker.
    pub srq: Option<bool>,
    /// READs and atomics that one QP may have outstanding.
    pub read_depth: Option<u32>,
    /// How often a request is sent again before the QP fails.
    pub retry: Option<u32>,
    /// How often a request waits for a receive of the peer; 7 = for ever.
    pub rnr_retry: Option<u32>,
    /// Microseconds that a peer is asked to wait when no receive is posted.
    pub rnr_timer_us: Option<u32>,
    /// Microseconds without an acknowledgement before a request is sent again.
    pub ack_timeout_us: Option<u32>,
    /// DSCP of the RoCE packets.
    pub dscp: Option<u32>,
    /// Buffers of the receive pool of a node; sized by the plan by default.
    pub pool_messages: Option<u32>,
}

/// `fabric.transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportKind {
    /// An RDMA device of the kernel: a NIC, or soft-RoCE (rxe).
    Verbs,
    /// RoCEv2 of our own over a port.
    Soft,
    /// Within this process.
    Loopback,
}

/// `fabric.auth`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// By the pre-shared key.
    #[default]
    Key,
    /// Not at all: only on loopback addresses, and for peers that `allow` names.
    None,
}

/// `fabric.qp`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// `[fabric.verbs]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerbsKeys {
    /// RDMA device; by default the only active one.
    pub device: Option<String>,
    /// Physical port of the device, from 1.
    pub port: Option<u32>,
    /// GID index; chosen by rule by default.
    pub gid_index: Option<u32>,
}

/// `[fabric.soft]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftKeys {
    /// Port that carries the RoCE packets: one of `[[port]]` or of a `[[link]]`.
    pub port: Option<String>,
    /// Own addresses with prefix length.
    pub addresses: Option<Vec<String>>,
    /// Next hop for peers outside the prefixes.
    pub gateway: Option<String>,
    /// VLAN id of the RoCE packets.
    pub vlan: Option<u32>,
    /// Largest IP packet of the RoCE side; the port's MTU by default.
    pub mtu: Option<u32>,
    /// Look whether another station has one of the IPv6 addresses; true by default.
    pub dad: Option<bool>,
    /// Send more slowly when the network says that it is congested; true by default.
    pub dcqcn: Option<bool>,
    /// Directory for flight records: the last packets of a queue pair that failed.
    pub flight_records: Option<String>,
    /// Packets kept of each queue pair for its flight record.
    pub flight_record_packets: Option<u32>,
}

impl From<QpKind> for rdma_engine::types::QpType {
    fn from(kind: QpKind) -> Self {
        match kind {
            QpKind::Rc => Self::Rc,
            QpKind::Uc => Self::Uc,
            QpKind::Ud => Self::Ud,
        }
    }
}

impl From<TransportKind> for rdma_engine::cm::TransportKind {
    fn from(kind: TransportKind) -> Self {
        match kind {
            TransportKind::Verbs => Self::Verbs,
            TransportKind::Soft => Self::Soft,
            TransportKind::Loopback => Self::Loopback,
        }
    }
}

impl FabricKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        let own = self.clone();
        let base = shared.clone();
        let (key, key_file) = match (own.key, own.key_file) {
            (None, None) => (base.key, base.key_file),
            chosen => chosen,
        };
        let (listen, connect) = match (own.listen, own.connect) {
            (None, None) => (base.listen, base.connect),
            chosen => chosen,
        };
        Self {
            transport: own.transport.or(base.transport),
            verbs: own.verbs.over(base.verbs),
            soft: own.soft.over(base.soft),
            listen,
            connect,
            key,
            key_file,
            allow: own.allow.or(base.allow),
            connect_timeout_ms: own.connect_timeout_ms.or(base.connect_timeout_ms),
            auth: own.auth.or(base.auth),
            dead_after_ms: own.dead_after_ms.or(base.dead_after_ms),
            keepalive_ms: own.keepalive_ms.or(base.keepalive_ms),
            reconnect_min_ms: own.reconnect_min_ms.or(base.reconnect_min_ms),
            reconnect_max_ms: own.reconnect_max_ms.or(base.reconnect_max_ms),
            qp: own.qp.or(base.qp),
            pmtu: own.pmtu.or(base.pmtu),
            link_gbps: own.link_gbps.or(base.link_gbps),
            rtt_us: own.rtt_us.or(base.rtt_us),
            send_depth: own.send_depth.or(base.send_depth),
            recv_depth: own.recv_depth.or(base.recv_depth),
            cq_depth: own.cq_depth.or(base.cq_depth),
            max_sge: own.max_sge.or(base.max_sge),
            inline: own.inline.or(base.inline),
            signal_every: own.signal_every.or(base.signal_every),
            srq: own.srq.or(base.srq),
            read_depth: own.read_depth.or(base.read_depth),
            retry: own.retry.or(base.retry),
            rnr_retry: own.rnr_retry.or(base.rnr_retry),
            rnr_timer_us: own.rnr_timer_us.or(base.rnr_timer_us),
            ack_timeout_us: own.ack_timeout_us.or(base.ack_timeout_us),
            dscp: own.dscp.or(base.dscp),
            pool_messages: own.pool_messages.or(base.pool_messages),
        }
    }
}

impl VerbsKeys {
    fn over(self, base: Self) -> Self {
        Self {
            device: self.device.or(base.device),
            port: self.port.or(base.port),
            gid_index: self.gid_index.or(base.gid_index),
        }
    }
}

impl SoftKeys {
    fn over(self, base: Self) -> Self {
        Self {
            port: self.port.or(base.port),
            addresses: self.addresses.or(base.addresses),
            gateway: self.gateway.or(base.gateway),
            vlan: self.vlan.or(base.vlan),
            mtu: self.mtu.or(base.mtu),
            dad: self.dad.or(base.dad),
            dcqcn: self.dcqcn.or(base.dcqcn),
            flight_records: self.flight_records.or(base.flight_records),
            flight_record_packets: self.flight_record_packets.or(base.flight_record_packets),
        }
    }
}
