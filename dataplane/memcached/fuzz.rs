//! What a fuzzer throws at the parser, and what must hold whatever it throws.

use super::operation::{Fetch, Store};
use super::request::{Command, Form, Limits, Parsed, Request, parse};
use super::rpc::{self, CALL_BYTES_MAX, Call};
use super::{KEY_BYTES_MAX, Operation, get_alone, set_alone, udp};

/// Small, so that short inputs get beyond it.
const LIMITS: Limits = Limits { value_bytes_max: 100 };
/// The longest data block that is passed over, with its end.
const SKIP_MAX: usize = (1 << 31) + 2;
/// Input without a line feed that is always only the first part of a line. Bytes.
const LINE_BYTES: usize = 2048;

/// Parses `bytes` as a stream, and as the datagram of a client; panics if that does, or if a request is not what the
/// protocol allows.
pub fn fuzz_parse(bytes: &[u8]) {
    requests(bytes);
    if let Ok((_, text)) = udp::request(bytes) {
        requests(text);
    }
    if let Ok(call) = rpc::call(bytes) {
        assert_eq!(put(&call), bytes);
    }
    if let Ok(answer) = rpc::answer(bytes) {
        let mut again = vec![];
        rpc::put_answer(&mut again, &answer);
        assert_eq!(again, bytes);
    }
}

/// All requests of the input.
fn requests(mut input: &[u8]) {
    alone(input);
    store_alone(input);
    loop {
        let mut key = [0; KEY_BYTES_MAX];
        match parse(input, &mut key, &LIMITS) {
            Parsed::Request(request) => {
                whole(&request, input.len());
                cut(&request, input);
                let next = request.used + request.skip;
                let Some(rest) = input.get(next..) else { return };
                input = rest;
            }
            Parsed::Incomplete { missing } => return assert!((1..=SKIP_MAX).contains(&missing), "{missing}"),
            Parsed::Close => return,
        }
    }
}

/// What is read as a `get` of one key and no more is that.
fn alone(input: &[u8]) {
    let Some(found) = get_alone(input) else { return };
    let mut key = [0; KEY_BYTES_MAX];
    let Parsed::Request(Request { command: Command::Get { keys, fetch, cas: false }, used, skip: 0 }) =
        parse(input, &mut key, &LIMITS)
    else {
        panic!("no get");
    };
    assert!(keys.eq([found]) && used == input.len(), "another get");
    assert_eq!(fetch, Fetch { value: true, bump: true, ..Fetch::default() });
}

/// What is read as one plain `set` and no more is that.
fn store_alone(input: &[u8]) {
    let Some((found, store)) = set_alone(input, &LIMITS) else { return };
    let (mut room, operation) = ([0; KEY_BYTES_MAX], Operation::Store(store));
    let command = Command::Item { key: found, operation, form: Form::Text { quiet: false } };
    let whole = Request { command, used: input.len(), skip: 0 };
    assert_eq!(parse(input, &mut room, &LIMITS), Parsed::Request(whole));
}

/// What a request says is within bounds, and reaches a memory node as it is.
fn whole(request: &Request<'_>, most: usize) {
    assert!((1..=most).contains(&request.used), "{} bytes of {most}", request.used);
    assert!(request.skip <= SKIP_MAX, "{}", request.skip);
    let is_key = |key: &[u8]| (1..=KEY_BYTES_MAX).contains(&key.len());
    match request.command {
        Command::Get { keys, .. } => assert!(keys.take(2000).all(is_key)),
        Command::Item { key, operation, .. } => {
            assert!(is_key(key), "a key of {} bytes", key.len());
            let value: &[u8] = match operation {
                Operation::Store(Store { value, .. }) => value,
                _ => &[],
            };
            assert!(value.len() <= LIMITS.value_bytes_max);
            let call = Call::Operation { key, operation };
            let message = put(&call);
            assert!(message.len() <= CALL_BYTES_MAX + key.len() + value.len());
            assert_eq!(rpc::call(&message), Ok(call));
        }
        Command::TooLarge { stale_key: Some(key), .. } => assert!(is_key(key)),
        _ => {}
    }
}

/// The same request stands there without what follows it, and none does with less.
fn cut(request: &Request<'_>, input: &[u8]) {
    let mut key = [0; KEY_BYTES_MAX];
    assert_eq!(parse(&input[..request.used], &mut key, &LIMITS), Parsed::Request(*request));
    for len in [0, request.used / 2, request.used - 1] {
        match parse(&input[..len], &mut key, &LIMITS) {
            Parsed::Incomplete { missing } => {
                assert!(missing >= 1 && len + missing <= request.used, "{len} and {missing}");
            }
            Parsed::Close => assert!(len > LINE_BYTES),
            Parsed::Request(less) => panic!("{less:?} in {len} bytes of {request:?}"),
        }
    }
}

fn put(call: &Call<'_>) -> Vec<u8> {
    let mut message = vec![];
    rpc::put_call(&mut message, call);
    message
}
