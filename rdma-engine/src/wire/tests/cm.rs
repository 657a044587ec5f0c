//! Connection management messages: captured ones are understood, and built again byte by byte.

use zerocopy::{FromBytes, IntoBytes};

use super::samples::vector;
use crate::types::{Pmtu, Psn};
use crate::wire::cm::*;
use crate::wire::*;

fn payload_of(words: &str) -> Vec<u8> {
    let bytes = vector(words);
    let frame = RoceFrame::parse(&bytes).unwrap();
    let deth = frame.packet.deth().unwrap();
    assert_eq!((deth.qkey.get(), deth.source_qpn.value()), (Deth::GSI_QKEY, 1));
    assert_eq!(frame.payload().len(), MAD_LEN);
    frame.payload().to_vec()
}

#[test]
fn request_reads_as_documented() {
    let payload = payload_of("rxe 6.1 CM REQ");
    let (mad, CmMessage::Req(req)) = CmMessage::parse(&payload).unwrap() else { panic!("not a REQ") };
    assert_eq!(mad.transaction_id.get(), 0x2_A1D2_563B);
    assert_eq!(req.service_id.get(), service_id(PortSpace::Tcp, 7174));
    assert_eq!(req.local_qpn.value(), 0x11);
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.remote_cm_timeout(), req.local_cm_timeout()), (20, 20));
    assert_eq!((req.transport(), req.flow_control(), req.srq()), (CmReq::TRANSPORT_RC, false, false));
    assert_eq!(req.starting_psn.psn(), Psn::new(0x5E_7B03));
    assert_eq!((req.retry_count(), req.rnr_retry_count(), req.max_cm_retries()), (7, 7, 15));
    assert_eq!(req.path_mtu(), Some(Pmtu::B1024));
    assert_eq!(req.primary.local_gid().to_string(), "::ffff:10.9.0.2");
    assert_eq!(req.primary.remote_gid().ip().to_string(), "10.9.0.1");
    assert_eq!((req.primary.flow_label(), req.primary.ack_timeout()), (0x02596, 19));
    assert!(!req.primary.subnet_local());
    let (cma, _) = CmaHeader::ref_from_prefix(&req.private_data).unwrap();
    let (source, destination) = cma.addresses().unwrap();
    assert_eq!((source.to_string(), destination.to_string()), ("10.9.0.2".into(), "10.9.0.1".into()));
    assert_eq!(CmaHeader::new(source, cma.source_port.get(), destination), Some(*cma));
}

#[test]
fn request_is_built_as_linux_builds_it() {
    let payload = payload_of("rxe 6.1 CM REQ");
    let mut req = CmReq::zeroed();
    req.local_comm_id = 0x3B56_D2A1.into();
    req.service_id = service_id(PortSpace::Tcp, 7174).into();
    req.local_ca_guid = u64::from_be_bytes(Mac([0x52, 0x54, 0, 0, 0, 2]).eui64()).into();
    req.local_qpn = U24::new(0x11);
    (req.responder_resources, req.initiator_depth) = (1, 1);
    req.set_remote_cm_timeout(20);
    req.set_local_cm_timeout(20);
    req.starting_psn = Psn::new(0x5E_7B03).into();
    req.set_retry_count(7);
    req.set_rnr_retry_count(7);
    req.pkey = Bth::DEFAULT_PKEY.into();
    req.set_path_mtu(Pmtu::B1024);
    req.set_max_cm_retries(15);
    (req.primary.local_lid, req.primary.remote_lid) = (0xFFFF.into(), 0xFFFF.into());
    req.primary.local_gid = crate::types::Gid::from(std::net::Ipv4Addr::new(10, 9, 0, 2)).0;
    req.primary.remote_gid = crate::types::Gid::from(std::net::Ipv4Addr::new(10, 9, 0, 1)).0;
    req.primary.set_flow_label(0x02596);
    req.primary.hop_limit = 64;
    req.primary.set_ack_timeout(19);
    let cma = CmaHeader::new("10.9.0.2".parse().unwrap(), 0x8470, "10.9.0.1".parse().unwrap()).unwrap();
    req.private_data[..36].copy_from_slice(cma.as_bytes());
    let mad = CmMad::new(0x2_A1D2_563B, &req);
    assert_eq!(mad.as_bytes(), payload);
}

#[test]
fn reply_and_the_rest_read_and_build() {
    let payload = payload_of("rxe 6.1 CM REP");
    let (mad, CmMessage::Rep(rep)) = CmMessage::parse(&payload).unwrap() else { panic!("not a REP") };
    assert_eq!((rep.local_comm_id.get(), rep.remote_comm_id.get()), (0x3AD9_5BA3, 0x3B56_D2A1));
    assert_eq!((rep.local_qpn.value(), rep.starting_psn.value()), (0x11, 0x99_C61C));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.target_ack_delay(), rep.rnr_retry_count(), rep.srq()), (15, 7, false));
    assert!(!rep.flow_control());
    assert_eq!(CmMad::new(mad.transaction_id.get(), rep).as_bytes(), payload);

    let payload = payload_of("rxe 6.1 CM RTU");
    let (mad, CmMessage::Rtu(rtu)) = CmMessage::parse(&payload).unwrap() else { panic!("not an RTU") };
    assert_eq!(rtu.remote_comm_id.get(), 0x3AD9_5BA3);
    assert_eq!(CmMad::new(mad.transaction_id.get(), rtu).as_bytes(), payload);

    let payload = payload_of("rxe 6.1 CM DREQ");
    let (_, CmMessage::Dreq(dreq)) = CmMessage::parse(&payload).unwrap() else { panic!("not a DREQ") };
    assert_eq!(dreq.remote_qpn.value(), 0x11);

    let payload = payload_of("rxe 6.1 CM DREP");
    let (_, message) = CmMessage::parse(&payload).unwrap();
    assert_eq!(message.attribute(), CmAttribute::Drep);
}

#[test]
fn reject_and_mra_bits_are_where_the_standard_puts_them() {
    let mut rej = CmRej::zeroed();
    rej.set_message(1);
    rej.set_info(&[7; 16]);
    rej.reason = 12.into();
    assert_eq!((rej.as_bytes()[8], rej.as_bytes()[9]), (0x40, 16 << 1));
    assert_eq!(rej.as_bytes()[10..13], [0, 12, 7]);
    assert_eq!((rej.message(), rej.info()), (1, &[7; 16][..]));
    assert_eq!(rej.reason(), RejectReason::INVALID_GID);
    rej.info_len_byte = 0xFF;
    assert_eq!(rej.info().len(), 72, "a length beyond the field is cut");

    let mut mra = CmMra::zeroed();
    mra.set_message(1);
    mra.set_service_timeout(24);
    assert_eq!((mra.as_bytes()[8], mra.as_bytes()[9]), (0x40, 24 << 3));
    assert_eq!((mra.message(), mra.service_timeout()), (1, 24));
    assert_eq!(timeout_ns(24), 68_719_476_736);
}

#[test]
fn sidr_layout_matches_the_standard() {
    let mut rep = CmSidrRep::zeroed();
    rep.status = 1;
    rep.qpn = U24::new(0xAB_CDEF);
    rep.service_id = 0x0111_1234.into();
    rep.qkey = 0x0123_4567.into();
    let bytes = rep.as_bytes();
    assert_eq!((bytes[4], &bytes[8..11]), (1, &[0xAB, 0xCD, 0xEF][..]));
    assert_eq!(bytes[12..24], [0, 0, 0, 0, 1, 0x11, 0x12, 0x34, 1, 0x23, 0x45, 0x67]);
    let mut req = CmSidrReq::zeroed();
    req.service_id = 1.into();
    req.private_data[0] = 9;
    assert_eq!((req.as_bytes()[15], req.as_bytes()[16]), (1, 9));
}

#[test]
fn other_mads_are_not_cm_messages() {
    let payload = payload_of("rxe 6.1 CM RTU");
    assert!(CmMessage::parse(&payload[..255]).is_none(), "cut short");
    for (at, value) in [(0, 2), (1, 0x81), (2, 1), (3, 0x81), (17, 0x0F)] {
        let mut changed = payload.clone();
        changed[at] = value;
        assert!(CmMessage::parse(&changed).is_none(), "byte {at} = {value:#x}");
    }
    let mut lap = payload;
    lap[17] = 0x19;
    assert_eq!(CmMessage::parse(&lap).unwrap().1.attribute(), CmAttribute::Lap);
}

#[test]
fn cma_addresses_of_both_families() {
    let v6: std::net::IpAddr = "fd00::1".parse().unwrap();
    let header = CmaHeader::new(v6, 1, v6).unwrap();
    assert_eq!((header.ip_version_byte, header.addresses()), (0x60, Some((v6, v6))));
    assert!(CmaHeader::new(v6, 1, "10.0.0.1".parse().unwrap()).is_none());
    assert_eq!(CmaHeader { version: 1, ..header }.addresses(), None);
    assert_eq!(CmaHeader { ip_version_byte: 0x50, ..header }.addresses(), None);
}
