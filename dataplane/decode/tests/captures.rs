//! The captures of kernel rxe, decoded as they always were, and as Wireshark decodes them.

use std::process::Command;

use serde_json::Value;

use super::{CAPTURES, data};
use crate::decode::{DecodeOptions, Followed, Show, run};

fn decoded(name: &str, options: &DecodeOptions) -> String {
    let mut out = Vec::new();
    run(&data(&format!("roce/{name}.pcap")), options, &mut out).expect("decodes");
    String::from_utf8(out).expect("text")
}

/// With `BLESS_DECODE=1` the expected output is written instead of compared; read the difference before
/// committing it.
#[test]
fn output_is_the_expected_one() {
    for name in CAPTURES {
        let text = decoded(name, &DecodeOptions::default());
        let path = data(&format!("decode/{name}.txt"));
        if std::env::var_os("BLESS_DECODE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "{name}, line {}", number + 1);
        }
        assert_eq!(text.lines().count(), expected.lines().count(), "{name}");
    }
}

fn objects(name: &str) -> Vec<Value> {
    let text = decoded(name, &DecodeOptions { json: true, ..Default::default() });
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn every_json_object_has_the_promised_fields() {
    for name in CAPTURES {
        let objects = objects(name);
        assert!(objects.len() > 10);
        for object in objects {
            for field in ["frame", "opcode_value", "dest_qpn", "psn", "payload_len"] {
                assert!(object[field].is_u64(), "{field} of {object}");
            }
            for field in ["src", "dst", "opcode", "icrc"] {
                assert!(object[field].is_string(), "{field} of {object}");
            }
            assert_eq!(object["icrc"], "ok");
        }
    }
}

#[test]
fn json_shows_a_connection_request_in_full() {
    let objects = objects("rxe61-ipv4");
    let req = objects.iter().find(|o| o["frame"] == 19).unwrap();
    assert_eq!(req["cm"]["message"], "REQ");
    assert_eq!(req["cm"]["local_qpn"], 0x11);
    assert_eq!(req["cm"]["service_id"], "0x1061c06");
    assert_eq!(req["deth"]["source_qpn"], 1);
    let ack = objects.iter().find(|o| o["frame"] == 23).unwrap();
    assert_eq!(
        (&ack["opcode"], &ack["aeth"]["meaning"]),
        (&Value::from("RC_ACKNOWLEDGE"), &Value::from("ACK"))
    );
}

/// Frame number, opcode, destination QP and PSN as tshark reads them; `None` if there is no tshark.
fn tshark(name: &str) -> Option<Vec<[u64; 4]>> {
    let fields = ["frame.number", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(data(&format!("roce/{name}.pcap"))).args(["-Y", "infiniband", "-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().ok().filter(|output| output.status.success())?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("hexadecimal"),
        None => text.parse().expect("decimal"),
    };
    let row = |line: &str| {
        let mut columns = line.split('\t').map(number);
        [(); 4].map(|()| columns.next().expect("four columns"))
    };
    Some(String::from_utf8(output.stdout).ok()?.lines().map(row).collect())
}

#[test]
fn wireshark_agrees() {
    for name in CAPTURES {
        let Some(theirs) = tshark(name) else {
            println!("SKIPPED: tshark is not installed (Debian package tshark)");
            return;
        };
        let ours: Vec<[u64; 4]> = objects(name)
            .iter()
            .map(|o| ["frame", "opcode_value", "dest_qpn", "psn"].map(|field| o[field].as_u64().unwrap()))
            .collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn conversations_have_json_of_their_own() {
    let options = DecodeOptions { json: true, show: Show::Conversations, ..Default::default() };
    let text = decoded("rxe61-ipv6", &options);
    let object: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&object["conversation"], &object["ok"]), (&Value::from(1), &Value::from(true)));
    assert_eq!(object["directions"].as_array().unwrap().len(), 2);
}

#[test]
fn any_frame_of_a_message_leads_to_its_life() {
    // READ request, first and middle response of a READ of several packets.
    for frame in [18, 19, 21] {
        let options =
            DecodeOptions { show: Show::Conversations, follow: Followed::Frame(frame), ..Default::default() };
        let text = decoded("rxe61-active-cm-rping", &options);
        assert!(text.contains("The life of one READ (frame 18)"), "{text}");
        assert!(text.contains("RETH address") && text.contains("IBV_WC_RDMA_READ"), "{text}");
    }
    let options =
        DecodeOptions { follow: Followed::Frame(9), show: Show::Conversations, ..Default::default() };
    assert!(decoded("rxe61-active-cm-rping", &options).contains("Frame 9 is not part of a message"));
}

#[test]
fn the_life_of_a_send_names_every_stage_of_the_textbooks() {
    let text = decoded("rxe61-ipv4", &DecodeOptions::default());
    let life = text.split("The life of one SEND").nth(1).expect("a life");
    for word in [
        "Work request",
        "ibv_post_send",
        "BTH opcode 0x04",
        "no RETH",
        "AETH syndrome 0x1f = ACK",
        "CQE",
        "ibv_poll_cq",
    ] {
        assert!(life.contains(word), "{word} in {life}");
    }
}
