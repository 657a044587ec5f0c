//! Requests as clients send them.

use super::report::{Report, ReportPool};
use super::*;
use dpdk_bind::mbuf::Checksum;

fn clients() -> Vec<Client> {
    let mut all = vec![];
    for client in [Client::v4(), Client::v6(), Client::new("203.0.113.7", "198.51.100.1")] {
        all.extend([Client { vlan: Some(7), ..client.clone() }, client]);
    }
    all
}

#[test]
fn requests_arrive_over_both_families_tagged_or_not() {
    for client in clients() {
        let mut rig = Rig::new(FrontSettings::new(host(client.vlan), PORT));
        let request = rig.request(&client.frame(b"get a\r\n"));
        assert_eq!(request.text(), b"get a\r\n");
        assert_eq!((request.peer.address(), request.peer.port()), (client.from, 40_000));
        assert_eq!((request.peer.request_id(), request.peer.mac), (0x1234, THEIRS));
        assert_eq!(rig.front.counters().requests, 1);
        assert_eq!(rig.front.counters().request_bytes, 7);
        drop(request);
        rig.end();
    }
}

#[test]
fn padding_of_the_frame_is_no_text() {
    for client in [Client::v4(), Client::v6()] {
        let mut rig = Rig::new(settings());
        let mut frame = client.frame(b"mn\r\n");
        frame.extend([0xEE; 20]);
        assert_eq!(rig.request(&frame).text(), b"mn\r\n");
    }
}

#[test]
fn a_datagram_may_be_shorter_than_its_packet() {
    let client = Client::v4();
    let udp = client.udp(b"\0\x01\0\0\0\x01\0\0mn\r\n");
    let packet = client.ipv4(0, 17, &[&udp[..], b"behind"].concat());
    assert_eq!(Rig::new(settings()).request(&client.ethernet(&packet)).text(), b"mn\r\n");
}

#[test]
fn ipv4_may_go_without_udp_checksum() {
    let client = Client { no_checksum: true, ..Client::v4() };
    assert_eq!(Rig::new(settings()).request(&client.frame(b"mn\r\n")).text(), b"mn\r\n");
}

#[test]
fn harmless_options_are_skipped() {
    // No-operation, timestamp, end.
    let client = Client { options: vec![1, 68, 6, 1, 2, 3, 4, 0], ..Client::v4() };
    assert_eq!(Rig::new(settings()).request(&client.frame(b"mn\r\n")).text(), b"mn\r\n");

    let options = [60, 0, 5, 2, 0, 0, 1, 0]; // Hop by hop: router alert, padding.
    let destination = [43, 0, 1, 4, 0, 0, 0, 0]; // Padding.
    let routing = [44, 0, 4, 0, 0, 0, 0, 0]; // No segments left.
    let atomic = [17, 0, 0, 0, 0, 0, 0, 1];
    let all = [options, destination, routing, atomic].concat();
    let client = Client { extensions: Some((0, all)), ..Client::v6() };
    assert_eq!(Rig::new(settings()).request(&client.frame(b"mn\r\n")).text(), b"mn\r\n");
}

#[test]
fn frames_in_segments_are_put_into_one() {
    for client in [Client::v4(), Client::v6()] {
        let text = [b"set k 0 0 3000\r\n".to_vec(), vec![b'x'; 3000], b"\r\n".to_vec()].concat();
        let frame = client.frame(&text);
        for cut in [1, 13, 14, 33, 80, 1001] {
            let mut rig = Rig::new(settings());
            let request = rig.give(Rig::chain(&[&frame[..cut], &frame[cut..2000], &frame[2000..]]));
            assert_eq!(request.as_ref().expect("a request").text(), text, "cut at {cut}");
            assert_eq!((rig.messages.in_use(), rig.front.counters().linearized), (1, 1));
            drop(request);
            rig.end();
        }
    }
}

#[test]
fn a_frame_in_segments_for_others_is_not_copied() {
    let mut frame = Client::v4().frame(b"mn\r\n");
    frame[5] = 77;
    let mut rig = Rig::new(settings());
    assert!(rig.give(Rig::chain(&[&frame[..40], &frame[40..]])).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::NotForUs, 1)]);
    assert_eq!(rig.front.counters().linearized, 0);
}

fn count(ip: Checksum, udp: Checksum, damage: usize) -> Vec<(FrontDrop, u64)> {
    let mut frame = Client::v4().frame(b"mn\r\n");
    frame[damage] ^= 1;
    let pool = ReportPool(HeapPool::new(4, 2048));
    let mut front = Front::new(settings(), false, Time(0));
    let request = front.receive(Time(0), Report::new(Rig::buffer(&frame), ip, udp), &pool, &pool);
    assert_eq!(request.is_some(), front.counters().all_drops().count() == 0);
    front.counters().all_drops().collect()
}

#[test]
fn what_the_port_has_checked_is_not_checked_again() {
    use Checksum::{Bad, Good, Unknown, Unneeded};
    // The identification of the IPv4 header, the id of the request.
    let (in_ip, in_udp) = (19, 43);
    assert_eq!(count(Unknown, Unknown, in_ip), [(FrontDrop::IpChecksum, 1)]);
    assert_eq!(count(Unknown, Unknown, in_udp), [(FrontDrop::UdpChecksum, 1)]);
    for fine in [Good, Unneeded] {
        assert_eq!(count(fine, Unknown, in_ip), []);
        assert_eq!(count(Unknown, fine, in_udp), []);
    }
    assert_eq!(count(Bad, Good, in_ip), [(FrontDrop::IpChecksum, 1)]);
    assert_eq!(count(Good, Bad, in_udp), [(FrontDrop::UdpChecksum, 1)]);
}
