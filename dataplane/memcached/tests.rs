use proptest::collection::vec;
use proptest::prelude::*;

use super::engine::{Items, drop_stale, execute};
use super::operation::{Hit, Outcome};
use super::reply::Fixed;
use super::request::{Command, Limits, Parsed, Request, StatsGroup, parse};
use super::rpc::{self, Call};
use super::{ItemMap, KEY_BYTES_MAX, Served, fuzz_parse, get_alone, reply, serve, set_alone};

const LIMITS: Limits = Limits { value_bytes_max: 1000 };
const NOW: u32 = 1_800_000_000;

/// Serves all of `input` at `now`, as a connection would.
fn talk(items: &mut ItemMap, now: u32, mut input: &[u8]) -> String {
    let mut out = vec![];
    let mut stats = |_: StatsGroup, _: &mut Vec<u8>| {};
    while !input.is_empty() {
        match serve(input, items, &LIMITS, now, &mut stats, &mut out) {
            Served::Done { used, skip } => {
                assert!((1..=input.len()).contains(&used));
                input = input.get(used + skip..).unwrap_or(b"");
            }
            Served::Incomplete { missing } => {
                assert!(missing > 0);
                break;
            }
            Served::Close => break,
        }
    }
    out.iter().map(|&b| char::from(b)).collect()
}

fn map() -> ItemMap {
    ItemMap::new(LIMITS.value_bytes_max)
}

// ---- examples ---------------------------------------------------------------------------------------------------

#[test]
fn items_go_at_their_time() {
    let mut items = map();
    assert_eq!(talk(&mut items, NOW, b"set a 1 10 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(talk(&mut items, NOW + 9, b"mg a t v l\r\n"), "VA 1 t1 l9\r\nx\r\n");
    assert_eq!(talk(&mut items, NOW + 9, b"touch a 10\r\n"), "TOUCHED\r\n");
    assert_eq!(talk(&mut items, NOW + 18, b"gat 2592000 a\r\n"), "VALUE a 1 1\r\nx\r\nEND\r\n");
    assert_eq!(talk(&mut items, NOW + 18, b"mg a t T0\r\nmg a t\r\n"), "HD t2592000\r\nHD t-1\r\n");
    let absolute = format!("touch a {}\r\n", NOW + 100);
    assert_eq!(talk(&mut items, NOW + 18, absolute.as_bytes()), "TOUCHED\r\n");
    assert_eq!(talk(&mut items, NOW + 99, b"me a\r\n"), "ME a exp=-1 la=81 cas=1 fetch=yes cls=0 size=2\r\n");
    assert_eq!(talk(&mut items, NOW + 100, b"get a\r\nmg a\r\nincr a 1\r\n"), "END\r\nEN\r\nNOT_FOUND\r\n");
}

#[test]
fn a_flush_takes_what_is_older() {
    let mut items = map();
    talk(&mut items, NOW, b"set a 0 0 1\r\nx\r\nflush_all 10\r\n");
    talk(&mut items, NOW + 9, b"set b 0 0 1\r\nx\r\n");
    assert!(talk(&mut items, NOW + 9, b"get a\r\n").starts_with("VALUE"));
    talk(&mut items, NOW + 10, b"set c 0 0 1\r\nx\r\n");
    assert_eq!(talk(&mut items, NOW + 10, b"get a b c\r\n"), "VALUE c 0 1\r\nx\r\nEND\r\n");
    assert_eq!(talk(&mut items, NOW + 11, b"flush_all\r\nget c\r\n"), "OK\r\nEND\r\n");
}

#[test]
fn what_is_missing_is_told() {
    let whole = b"set key 0 0 10\r\n0123456789\r\n";
    let mut key = [0; KEY_BYTES_MAX];
    for length in 0..whole.len() {
        let expected = if length < 16 { 1 } else { whole.len() - length };
        assert_eq!(parse(&whole[..length], &mut key, &LIMITS), Parsed::Incomplete { missing: expected });
    }
    for length in 0..9 {
        assert_eq!(parse(&b"get a b\r\n"[..length], &mut key, &LIMITS), Parsed::Incomplete { missing: 1 });
    }
}

#[test]
fn a_line_without_end_is_given_up() {
    let mut key = [0; KEY_BYTES_MAX];
    let line = |start: &str, bytes: usize| [start.as_bytes(), &vec![b'x'; bytes - start.len()]].concat();
    for (start, limit) in [("set ", 2048), ("gets  ", 65_536), ("    get ", 65_536), ("", 2048)] {
        assert_eq!(parse(&line(start, limit), &mut key, &LIMITS), Parsed::Incomplete { missing: 1 });
        assert_eq!(parse(&line(start, limit + 1), &mut key, &LIMITS), Parsed::Close);
    }
    let spaces = [vec![b' '; 101], b"get ".to_vec(), vec![b'x'; 3000]].concat();
    assert_eq!(parse(&spaces, &mut key, &LIMITS), Parsed::Close);
}

#[test]
fn keys_and_values_are_not_copied() {
    let input = b"set key 0 0 5\r\nvalue\r\n";
    let mut buffer = [0; KEY_BYTES_MAX];
    let Parsed::Request(Request { command: Command::Item { key, operation, .. }, .. }) =
        parse(input, &mut buffer, &LIMITS)
    else {
        panic!("not a request");
    };
    let super::Operation::Store(store) = operation else { panic!("not a store") };
    assert!(std::ptr::eq(key, &raw const input[4..7]));
    assert!(std::ptr::eq(store.value, &raw const input[15..20]));
}

#[test]
fn statistics_are_framed() {
    let mut out = vec![];
    let mut items = map();
    let mut stats = |group: StatsGroup, out: &mut Vec<u8>| {
        assert_eq!(group, StatsGroup::Items);
        super::reply::stat(out, "items:1:number", "5");
    };
    serve(b"stats items\r\n", &mut items, &LIMITS, NOW, &mut stats, &mut out);
    assert_eq!(out, b"STAT items:1:number 5\r\nEND\r\n");
}

#[test]
fn a_reply_that_does_not_fit_is_none() {
    let mut items = map();
    talk(&mut items, NOW, b"set a 0 0 5\r\nhello\r\n");
    let reply = b"VALUE a 0 5\r\nhello\r\nEND\r\n";
    for room in 0..40 {
        let mut memory = [0; 40];
        let mut out = Fixed::new(&mut memory[..room]);
        serve(b"get a\r\n", &mut items, &LIMITS, NOW, &mut |_, _| {}, &mut out);
        assert_eq!(out.reply(), (room >= reply.len()).then_some(&reply[..]), "{room}");
    }
}

/// `amend` and `find` may lose an item to eviction; nothing panics on that.
#[test]
fn a_store_without_room_is_told() {
    let mut items = ItemMap::new(2);
    assert_eq!(
        talk(&mut items, NOW, b"set a 0 0 3\r\nabc\r\n"),
        "SERVER_ERROR out of memory storing object\r\n"
    );
    assert_eq!(talk(&mut items, NOW, b"set a 0 0 2\r\n99\r\n"), "STORED\r\n");
    assert_eq!(talk(&mut items, NOW, b"append a 0 0 1\r\n1\r\n"), "NOT_STORED\r\n");
    assert_eq!(talk(&mut items, NOW, b"incr a 1\r\n"), "SERVER_ERROR out of memory storing object\r\n");
    assert_eq!(talk(&mut items, NOW, b"ma b N0 J100\r\n"), "SERVER_ERROR out of memory storing object\r\n");
    assert_eq!(talk(&mut items, NOW, b"get a b\r\n"), "VALUE a 0 2\r\n99\r\nEND\r\n");
}

// ---- properties -------------------------------------------------------------------------------------------------

/// Pieces of commands, so that random input gets further than the first word.
const PIECES: [&str; 48] = [
    "get ",
    "gets ",
    "gat ",
    "set ",
    "add ",
    "append ",
    "prepend ",
    "replace ",
    "cas ",
    "incr ",
    "decr ",
    "touch ",
    "delete ",
    "flush_all ",
    "stats ",
    "verbosity ",
    "mg ",
    "ms ",
    "md ",
    "ma ",
    "me ",
    "mn ",
    "a ",
    "b ",
    "0 ",
    "1 ",
    "5 ",
    "-1 ",
    "1000 ",
    "4294967296 ",
    "99999999999999999999 ",
    "noreply",
    "v ",
    "b ",
    "k ",
    "t ",
    "O1 ",
    "T30 ",
    "N30 ",
    "R90 ",
    "MA ",
    "C1 ",
    "J5 ",
    "I ",
    "\r\n",
    "\r\n",
    "0 0 1\r\nx\r\n",
    "1\r\n7\r\n",
];

fn commands() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        40 => (0..PIECES.len()).prop_map(|index| PIECES[index].as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..5),
    ];
    vec(piece, 1..60).prop_map(|pieces| pieces.concat())
}

/// As [`talk`], with every operation sent to the items and its outcome sent back.
fn talk_by_message(items: &mut ItemMap, mut input: &[u8]) -> String {
    let mut out = vec![];
    let mut buffer = [0; KEY_BYTES_MAX];
    while let Parsed::Request(request) = parse(input, &mut buffer, &LIMITS) {
        input = input.get(request.used + request.skip..).unwrap_or(b"");
        match request.command {
            Command::Item { key, operation, form } => {
                let answer = by_message(items, &Call::Operation { key, operation });
                super::reply::answer(&mut out, &form, key, &rpc::answer(&answer).unwrap());
            }
            Command::TooLarge { stale_key: Some(key), .. } => {
                by_message(items, &Call::Drop { key });
            }
            Command::Flush { delay, .. } => {
                by_message(items, &Call::Flush { delay });
            }
            _ => {}
        }
    }
    out.iter().map(|&b| char::from(b)).collect()
}

fn by_message(items: &mut ItemMap, call: &Call<'_>) -> Vec<u8> {
    let (mut message, mut answer) = (vec![], vec![]);
    rpc::put_call(&mut message, call);
    let decoded = rpc::call(&message).unwrap();
    if let Call::Operation { key, .. } | Call::Drop { key } = decoded {
        assert_eq!(rpc::key(&message), Some(key), "the key is found without reading the rest");
    }
    assert_eq!(decoded, *call);
    match decoded {
        Call::Operation { key, operation } => {
            let value_bytes =
                if let super::Operation::Store(store) = operation { store.value.len() } else { 0 };
            assert!(message.len() <= rpc::CALL_BYTES_MAX + key.len() + value_bytes);
            rpc::put_answer(&mut answer, &execute(items, key, &operation, NOW));
        }
        Call::Flush { delay } => items.flush(if delay.0 == 0 { NOW } else { delay.deadline(NOW) }, NOW),
        Call::Drop { key } => drop_stale(items, key),
    }
    answer
}

/// The same without messages, and without the replies of commands that have no key.
fn talk_directly(items: &mut ItemMap, mut input: &[u8]) -> String {
    let mut out = vec![];
    let mut buffer = [0; KEY_BYTES_MAX];
    while let Parsed::Request(request) = parse(input, &mut buffer, &LIMITS) {
        let keyed = matches!(request.command, Command::Item { .. });
        let mut said = vec![];
        let text = &input[..request.used];
        input = input.get(request.used + request.skip..).unwrap_or(b"");
        if matches!(request.command, Command::Get { .. }) {
            continue;
        }
        serve(text, items, &LIMITS, NOW, &mut |_, _| {}, &mut said);
        if keyed {
            out.extend(said);
        }
    }
    out.iter().map(|&b| char::from(b)).collect()
}

/// Numbers of any length.
fn numbers() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32_u32).prop_map(|(bits, shift)| bits >> shift)
}

proptest! {
    #[test]
    fn any_bytes_are_served(input in vec(any::<u8>(), 0..400)) {
        talk(&mut map(), NOW, &input);
    }

    #[test]
    fn the_fuzz_target_holds(bytes in vec(any::<u8>(), 0..200), text in commands(), cut in 0..400_usize) {
        let text = [&b"\0\x01\0\0\0\x01\0\0"[..], &text[..text.len().min(cut)]].concat();
        for input in [&bytes[..], &text] {
            fuzz_parse(input);
        }
        fuzz_parse(&[&text[..], &bytes].concat());
    }

    #[test]
    fn a_get_alone_is_what_it_would_be_among_others(key in vec(0x1E_u8..0x24, 0..20), plain in "[a-z!~\u{80}]{0,251}", end in 0..4) {
        let end = ["\r\n", "\n", "\r\r\n", "\r\nget b\r\n"][end as usize];
        for key in [&key[..], plain.as_bytes(), &[plain.as_bytes(), &key[..]].concat()] {
            // The fuzz target asserts it.
            let text = [b"get ", key, end.as_bytes()].concat();
            fuzz_parse(&text);
            let is_usual = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(|b| *b > b' ') && end == "\r\n";
            prop_assert_eq!(get_alone(&text), is_usual.then_some(key));
        }
    }

    #[test]
    fn a_set_alone_is_what_it_would_be_among_others(
        key in prop_oneof![vec(0x1F_u8..0x24, 0..12), "[a-z!~\u{80}]{0,251}".prop_map(String::into_bytes)],
        numbers in prop_oneof![4 => "[0-9]{1,9} [0-9]{1,9}", 1 => "[0-9 +-]{0,10}"],
        value in vec(any::<u8>(), 0..103),
        (said, end) in (prop_oneof![4 => Just(0), 1 => -1..2_i32], 0..5_usize),
    ) {
        let end = ["\r\n", "\n", "", "\r\nget b\r\n", "\r\n\r\n"][if said == 0 { end.saturating_sub(2) } else { end }];
        let bytes = value.len().wrapping_add_signed(said as isize);
        let head = format!(" {numbers} {bytes}\r\n");
        let text = [b"set ", &key[..], head.as_bytes(), &value, end.as_bytes()].concat();
        // The fuzz target asserts that it is read the same way in general.
        fuzz_parse(&text);
        let is_plain = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(|b| *b > b' ');
        let digits = |n: &str| (1..10).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit());
        // A value that is said to be shorter may end where the line does.
        let ends_early = said < 0 && value.last() == Some(&b'\r') && end == "\n";
        let is_usual = numbers.split(' ').count() == 2 && numbers.split(' ').all(digits) && said == 0;
        if is_plain && is_usual && end == "\r\n" && value.len() <= 100 {
            let limits = Limits { value_bytes_max: 100 };
            let (found, store) = set_alone(&text, &limits).expect("a plain set");
            prop_assert_eq!((found, store.value), (&key[..], &value[..]));
            prop_assert_eq!(set_alone(&text, &Limits { value_bytes_max: value.len().wrapping_sub(1) }).is_some(), value.is_empty());
        } else if !is_plain || !is_usual && !ends_early {
            prop_assert_eq!(set_alone(&text, &Limits { value_bytes_max: 100 }), None);
        }
    }

    #[test]
    fn a_line_in_place_is_the_line(key in vec(any::<u8>(), 1..=KEY_BYTES_MAX), flags in numbers(), bytes in numbers()) {
        let mut line = vec![];
        reply::value_line(&mut line, &key, flags, bytes, None);
        let in_place = reply::ValueLine::new(&key, flags, bytes);
        let mut room = vec![0xEE; in_place.len()];
        in_place.write(&mut room);
        prop_assert_eq!(room, line);
    }

    #[test]
    fn any_commands_are_served(input in commands()) {
        talk(&mut map(), NOW, &input);
    }

    #[test]
    fn a_message_away_is_the_same(input in commands()) {
        let (mut near, mut far) = (map(), map());
        prop_assert_eq!(talk_by_message(&mut far, &input), talk_directly(&mut near, &input));
        for key in [&b"a"[..], b"b"] {
            prop_assert_eq!(far.find(key, NOW), near.find(key, NOW));
        }
    }

    #[test]
    fn any_message_is_decoded_or_refused(message in vec(any::<u8>(), 0..100), kind in 0_u8..10, key in 0_u8..4) {
        for message in [message.clone(), [&[kind, key], &message[..]].concat()] {
            if let Ok(call) = rpc::call(&message) {
                let mut again = vec![];
                rpc::put_call(&mut again, &call);
                prop_assert_eq!(&again, &message);
            }
            if let Ok(answer) = rpc::answer(&message) {
                let mut again = vec![];
                rpc::put_answer(&mut again, &answer);
                prop_assert_eq!(&again, &message);
            }
        }
    }

    #[test]
    fn a_message_cut_short_or_long_is_refused(value in vec(any::<u8>(), 0..50), ttl_s in proptest::option::of(0..9_u32)) {
        let hit = Hit { value: &value, size: value.len() as u32, ttl_s, won: true, ..Hit::default() };
        let mut message = vec![];
        rpc::put_answer(&mut message, &Outcome::Hit(hit));
        prop_assert!(message.len() <= rpc::ANSWER_BYTES_MAX + value.len());
        prop_assert_eq!(rpc::answer(&message), Ok(Outcome::Hit(hit)));
        for length in 0..message.len() {
            prop_assert!(rpc::answer(&message[..length]).is_err());
        }
        message.push(0);
        prop_assert!(rpc::answer(&message).is_err());
    }
}
