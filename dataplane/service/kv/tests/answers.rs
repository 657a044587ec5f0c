//! What a request's answer holds while the rest of the request is carried out.

use crate::service::kv::sim::{Cluster, Setup, VALUE};

const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory writing get response\r\n";

/// One request at the first gateway, whose reply comes.
fn ask(c: &mut Cluster, text: &str) -> String {
    c.ask(0, 1, text.as_bytes());
    assert!(c.until(|c| !c.gateways[0].replies.is_empty()), "no reply, {:?}", c.downs());
    String::from_utf8(c.gateways[0].replies.pop_front().unwrap().1).unwrap()
}

fn set(c: &mut Cluster, key: &str, bytes: usize) -> String {
    let value = "v".repeat(bytes);
    assert_eq!(c.say(0, &format!("set {key} 0 0 {bytes}\r\n{value}\r\n")), "STORED\r\n");
    format!("VALUE {key} 0 {bytes}\r\n{value}\r\nEND\r\n")
}

/// That anything else is answered, and nothing broke.
fn works(c: &mut Cluster) {
    let whole = set(c, "after", VALUE);
    assert_eq!(ask(c, "get after\r\n"), whole);
    assert_eq!(ask(c, "get nothing\r\n"), "END\r\n");
    assert!(c.downs().iter().all(|of_one| of_one.is_empty()), "{:?}", c.downs());
    assert_eq!(c.gateways[0].engine.nodes_up(), 1);
}

#[test]
fn large_values_of_one_request_do_not_take_what_answers_arrive_in() {
    for messages in [60, 80, 200] {
        let mut c = Cluster::new(Setup { messages, ..Setup::default() });
        let value = set(&mut c, "big", VALUE);
        for command in ["get big", "gat 0 big"] {
            let reply = ask(&mut c, &format!("{command}\r\n").repeat(200));
            let (values, errors) = (reply.matches(&value).count(), reply.matches(OUT_OF_MEMORY).count());
            assert_eq!(values + errors, 200, "{messages} messages");
            assert!(
                values > 0 && errors > 0 && values <= messages / 4,
                "{values} values, {messages} messages"
            );
            assert_eq!(reply.len(), values * value.len() + errors * OUT_OF_MEMORY.len());
        }
        works(&mut c);
        c.close();
    }
}

#[test]
fn many_clients_may_want_much_at_once() {
    let mut c = Cluster::new(Setup { messages: 80, ..Setup::default() });
    let value = set(&mut c, "big", VALUE);
    for client in 0..50 {
        c.ask(0, client * 20, "get big\r\nget big\r\n".repeat(10).as_bytes());
    }
    assert!(c.until(|c| c.gateways[0].replies.len() == 50), "{:?}", c.downs());
    assert!(c.gateways[0].replies.iter().any(|(_, reply)| reply.starts_with(value.as_bytes())));
    c.gateways[0].replies.clear();
    works(&mut c);
    c.close();
}

#[test]
fn small_values_of_earlier_commands_do_not_take_what_later_ones_need() {
    let mut c = Cluster::new(Setup { frames: 1500, ..Setup::default() });
    set(&mut c, "mid", 1000);
    for client in 0..8 {
        c.ask(0, client * 20, "get mid\r\n".repeat(1000).as_bytes());
    }
    assert!(c.until(|c| c.gateways[0].replies.len() == 8), "{:?}", c.downs());
    for (_, reply) in c.gateways[0].replies.drain(..) {
        assert_eq!(reply, OUT_OF_MEMORY.as_bytes(), "all or nothing: it would not fit in any reply");
    }
    works(&mut c);
    c.close();
}

#[test]
fn only_replies_that_say_nothing_but_errors_are_limited_as_such() {
    let mut c = Cluster::new(Setup::default());
    set(&mut c, "a", 1);
    for (text, is_error) in [
        ("ERROR\r\n", true),
        ("ERROR\r\nERROR\r\n", true),
        ("ERROR\r\nx\r\nERROR\r\n", true),
        ("x\r\nget a\r\n", false),
        ("get a\r\nx\r\n", false),
        ("x\r\nget none\r\nx\r\n", false),
        ("x\r\nset a 0 0 1\r\nb\r\n", false),
        ("x\r\nset a 0 0 1 noreply\r\nb\r\n", true),
        ("version\r\nx\r\n", false),
        ("x\r\nmn\r\n", false),
    ] {
        let before = c.gateways[0].errors;
        let reply = ask(&mut c, text);
        assert_eq!(c.gateways[0].errors - before, u64::from(is_error), "{text:?} is answered by {reply:?}");
    }
    // Who asks what makes sense is told why it cannot be done, however many they are.
    c.fail_gateway_end(0, 0);
    let before = c.gateways[0].errors;
    for text in ["get a\r\n", "set a 0 0 1\r\nb\r\n", "delete a\r\n", "mg a v\r\n"] {
        assert_eq!(ask(&mut c, text), "SERVER_ERROR memory node down\r\n", "{text:?}");
    }
    assert_eq!(c.gateways[0].errors, before);
    c.close();
}
