//! Our memcached protocol beside memcached itself: the same bytes to both, the replies compared byte by byte.
//!
//! `tests/data/memcached/script.txt` is the script; a seeded generator adds commands nobody thought of. What cannot be equal
//! (cas uniques, times by a second, slab classes) is made so before comparing; `docs/memcached.md` lists what is not equal
//! and why, and no step of the script touches that. Without memcached the tests say SKIPPED.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus::memcached::{ItemMap, Limits, Served, StatsGroup, serve, udp};
use isthmus::service::kv::sim::{Cluster, Setup};
use zerocopy::IntoBytes;

/// Values that both take: below memcached's 1 MiB item, which has a header too.
const LIMITS: Limits = Limits { value_bytes_max: 1_048_000 };
/// How long a read may block before the test says that memcached went silent.
const SILENCE: Duration = Duration::from_secs(30);

// ---- memcached --------------------------------------------------------------------------------------------------

/// A memcached of our own on a loopback port, ended on drop.
struct Memcached {
    child: Child,
    address: SocketAddr,
    stream: TcpStream,
}

impl Memcached {
    /// `None`, with the reason said, where there is none.
    fn start(test: &str) -> Option<Self> {
        let program = Path::new("/usr/bin/memcached");
        if !program.exists() {
            eprintln!("SKIPPED: {test}: memcached is not installed");
            return None;
        }
        let version = Command::new(program).arg("--version").output().unwrap();
        if version.stdout.trim_ascii_end() != b"memcached 1.6.18" {
            let found = String::from_utf8_lossy(&version.stdout);
            eprintln!("SKIPPED: {test}: the yardstick is memcached 1.6.18, this is {}", found.trim());
            return None;
        }
        let address = free_port();
        let port = address.port().to_string();
        let mut words = vec!["-l", "127.0.0.1", "-p", &port, "-U", &port, "-t", "1", "-m", "64", "-W", "-X"];
        // A thread in the background that looks at an item keeps `incr` from changing it in place, now and then.
        words.extend(["-o", "no_lru_maintainer,no_lru_crawler", "-u", "nobody"]);
        let child = Command::new(program).args(words).stderr(Stdio::null()).spawn().unwrap();
        let stream = connect(address);
        Some(Self { child, address, stream })
    }

    /// The reply to `step`, which ends where the reply to `sentinel` begins.
    fn ask(&mut self, step: &[u8], sentinel: &Sentinel) -> Reply {
        let sent = self.stream.write_all(&[step, &sentinel.request].concat());
        let mut reply = vec![];
        let mut buffer = vec![0; 65_536];
        while sent.is_ok() && !reply.ends_with(&sentinel.reply) {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => reply.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("memcached went silent after {:?}: {error}", text(step)),
            }
        }
        let reply = sentinel.cut(reply);
        if reply.closed {
            self.stream = connect(self.address);
        }
        reply
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It is of no use any more, and may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    for _ in 0..1000 {
        if let Ok(stream) = TcpStream::connect(address) {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            return stream;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("memcached does not listen on {address}");
}

// ---- ours -------------------------------------------------------------------------------------------------------

/// What is held against memcached.
trait Server {
    /// Bytes of the longest request.
    const LONGEST: usize = usize::MAX;
    /// Reads leave a trace in the item, as they do in memcached.
    const READS_SHOW: bool = true;
    /// Cas uniques of different keys can be compared, and there is a connection to close.
    const IS_MEMCACHED: bool = true;

    fn ask(&mut self, step: &[u8], sentinel: &Sentinel) -> Reply;

    /// Time goes by.
    fn sleep(&mut self, seconds: u64) {
        let _ = seconds;
    }
}

struct Ours {
    items: ItemMap,
}

/// A gateway and a memory node, on virtual time: the whole way but for the network.
struct Whole {
    cluster: Cluster,
}

impl Whole {
    fn new() -> Self {
        let unix_ns = u64::from(unix_s()) * 1_000_000_000;
        Self { cluster: Cluster::new(Setup { tear: 3, unix_ns, ..Setup::default() }) }
    }
}

impl Server for Whole {
    const LONGEST: usize = 12_000;
    const READS_SHOW: bool = false;
    const IS_MEMCACHED: bool = false;

    fn ask(&mut self, step: &[u8], sentinel: &Sentinel) -> Reply {
        let reply = self.cluster.ask_all(0, &[step, &sentinel.request].concat());
        sentinel.cut(reply)
    }

    fn sleep(&mut self, seconds: u64) {
        self.cluster.turns(seconds as usize * 100_000);
    }
}

impl Ours {
    fn new() -> Self {
        Self { items: ItemMap::new(LIMITS.value_bytes_max) }
    }

    /// Serves a stream of bytes as a connection would.
    fn serve_all(&mut self, mut input: &[u8]) -> Vec<u8> {
        let mut reply = vec![];
        let mut stats = |_: StatsGroup, _: &mut Vec<u8>| {};
        while !input.is_empty() {
            match serve(input, &mut self.items, &LIMITS, unix_s(), &mut stats, &mut reply) {
                Served::Done { used, skip } => input = input.get(used + skip..).unwrap_or(b""),
                Served::Incomplete { .. } | Served::Close => break,
            }
        }
        reply
    }

    fn serve_datagram(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let Ok((header, text)) = udp::request(datagram) else { return vec![] };
        let reply = self.serve_all(text);
        let split = udp::Split::new(header.request_id.get(), reply.len(), udp::DATAGRAM_BYTES).unwrap();
        split.map(|(header, range)| [header.as_bytes(), &reply[range]].concat()).collect()
    }
}

impl Server for Ours {
    fn ask(&mut self, step: &[u8], sentinel: &Sentinel) -> Reply {
        let reply = self.serve_all(&[step, &sentinel.request].concat());
        sentinel.cut(reply)
    }
}

fn unix_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

// ---- comparing --------------------------------------------------------------------------------------------------

/// A request whose reply nothing else has: it shows where the reply to a step ends.
struct Sentinel {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Sentinel {
    fn new(number: u64) -> Self {
        let request = format!("mg no-such-key O{number}\r\n").into_bytes();
        Self { request, reply: format!("EN O{number}\r\n").into_bytes() }
    }

    fn cut(&self, mut reply: Vec<u8>) -> Reply {
        let closed = !reply.ends_with(&self.reply);
        if !closed {
            reply.truncate(reply.len() - self.reply.len());
        }
        Reply { bytes: reply, closed }
    }
}

#[derive(PartialEq, Debug)]
struct Reply {
    bytes: Vec<u8>,
    closed: bool,
}

impl Reply {
    fn said(&self) -> String {
        let end = if self.closed { " (closed)" } else { "" };
        normal(&text(&self.bytes)) + end
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// A reply without what may differ: cas uniques, idle times, classes, sizes of items, names of statistics, the version;
/// times to live are rounded to tens.
fn normal(reply: &str) -> String {
    let lines = reply.split("\r\n").filter(|line| !line.starts_with("STAT "));
    lines.map(normal_line).collect::<Vec<_>>().join("\r\n")
}

fn normal_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let words = words.iter().enumerate().map(|(index, word)| match words[0] {
        "VALUE" if index == 4 => "#".into(),
        "VERSION" if index == 1 => "#".into(),
        "HD" | "VA" | "NS" | "EX" | "NF" if index > 0 => normal_flag(word),
        "ME" if index > 1 => normal_fact(word),
        _ => (*word).into(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn normal_flag(word: &str) -> String {
    match (word.as_bytes().first(), word[1.min(word.len())..].parse::<u64>()) {
        (Some(b'c'), Ok(1..)) => "c#".into(),
        (Some(b'l'), Ok(_)) => "l#".into(),
        (Some(b't'), Ok(seconds)) => format!("t{}", (seconds + 5) / 10 * 10),
        _ => word.into(),
    }
}

fn normal_fact(word: &str) -> String {
    match word.split_once('=') {
        Some(("exp", "-1")) => word.into(),
        Some(("exp", time)) => format!("exp={}", (time.parse::<i64>().unwrap() - 5) / 10 * 10),
        Some(("fetch", _)) | None => word.into(),
        Some((name, _)) => format!("{name}=#"),
    }
}

/// A reply without what tells whether an item has been read.
fn without_reads(reply: &str) -> String {
    let words = reply.split_inclusive([' ', '\r']).map(|word| match word.trim_end() {
        "h0" | "h1" | "fetch=yes" | "fetch=no" => format!("#{}", &word[word.trim_end().len()..]),
        _ => word.into(),
    });
    words.collect()
}

/// memcached and ours, and what they disagreed about.
struct Pair<S> {
    memcached: Memcached,
    ours: S,
    steps: u64,
    differences: Vec<String>,
}

impl<S: Server> Pair<S> {
    fn start(test: &str, ours: impl FnOnce() -> S) -> Option<Self> {
        let memcached = Memcached::start(test)?;
        Some(Self { memcached, ours: ours(), steps: 0, differences: vec![] })
    }

    /// Takes one step with both. `{cas KEY}` in it becomes each one's own cas unique of that key.
    fn step(&mut self, line: &str) {
        self.steps += 1;
        let sentinel = Sentinel::new(self.steps);
        let (memcached, ours) = (&mut self.memcached, &mut self.ours);
        let theirs = expand(line, &mut |key| memcached.ask(&gets(key), &sentinel).bytes);
        let mine = expand(line, &mut |key| ours.ask(&gets(key), &sentinel).bytes);
        if theirs.len().max(mine.len()) > S::LONGEST {
            return;
        }
        let shown = |said: String| if S::READS_SHOW { said } else { without_reads(&said) };
        let expected = shown(memcached.ask(&theirs, &sentinel).said());
        let said = shown(ours.ask(&mine, &sentinel).said());
        if said != expected {
            self.differences.push(format!("{line}\n  memcached: {expected:?}\n  ours:      {said:?}"));
        }
    }

    fn finish(self) {
        let found = self.differences.len();
        assert!(
            found == 0,
            "{found} of {} differ:\n{}",
            self.steps,
            self.differences[..found.min(40)].join("\n")
        );
    }
}

fn gets(key: &str) -> Vec<u8> {
    format!("gets {key}\r\n").into_bytes()
}

// ---- script -----------------------------------------------------------------------------------------------------

/// The bytes of a step: `\r`, `\n`, `\\` and `\xNN` are themselves, `{x*250}` is 250 times x, `{cas KEY}` and `{cas KEY +1}`
/// a cas unique and one beside it; a line ending follows.
fn expand(line: &str, gets: &mut impl FnMut(&str) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![];
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let length = character.len_utf8();
        if let Some((inside, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            bytes.extend(braces(inside, gets));
            rest = after;
        } else if let Some(escape) = rest.strip_prefix('\\') {
            let (byte, used) = escaped(escape);
            bytes.push(byte);
            rest = &escape[used..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..length]);
            rest = &rest[length..];
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn escaped(escape: &str) -> (u8, usize) {
    match escape.as_bytes()[0] {
        b'r' => (b'\r', 1),
        b'n' => (b'\n', 1),
        b'x' => (u8::from_str_radix(&escape[1..3], 16).unwrap(), 3),
        other => (other, 1),
    }
}

fn braces(inside: &str, gets: &mut impl FnMut(&str) -> Vec<u8>) -> Vec<u8> {
    if let Some((what, times)) = inside.rsplit_once('*') {
        return what.repeat(times.parse().unwrap()).into_bytes();
    }
    let mut words = inside.split(' ').skip(1);
    let reply = text(&gets(words.next().unwrap()));
    // A key that is not there has a cas unique that no item has.
    let cas: i64 = reply.split_whitespace().nth(4).map_or(0xffff_ffff, |word| word.parse().unwrap());
    let plus: i64 = words.next().map_or(0, |word| word.parse().unwrap());
    (cas + plus).to_string().into_bytes()
}

#[test]
fn the_script_is_answered_as_memcached_does() {
    if let Some(pair) = Pair::start("the script of commands", Ours::new) {
        play(pair);
    }
}

#[test]
fn the_script_is_answered_by_gateway_and_node_as_memcached_does() {
    if let Some(pair) = Pair::start("the script of commands at a gateway", Whole::new) {
        play(pair);
    }
}

/// What `stats` of both count alike.
const COUNTED: [&str; 17] = [
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "get_hits",
    "get_misses",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "cas_hits",
    "cas_misses",
    "cas_badval",
    "touch_hits",
    "touch_misses",
];

/// Commands whose counts are compared, each on its own: an item `a`, a number `n`, and `q`, which is not there.
const COUNTING: &str = "set a 0 0 1|x; set n 0 0 1|5; add a 0 0 1|1; replace q 0 0 1|1; append q 0 0 1|1; prepend a 0 0 1|2; \
    get a; gets a; get a q n; get q noreply; cas a 0 0 1 {cas a}|1; cas a 0 0 1 1|1; cas q 0 0 1 1|1; \
    cas a 0 0 1 1 noreply|1; set a 0 0 1 noreply|1; incr n 1; incr q 1; incr n 1 noreply; decr n 1; decr q 1; set s 0 0 1|x; \
    incr s 1; decr s 1; touch a 0; touch q 0; touch a 0 noreply; touch q 0 noreply; gat 0 a; gat 0 q; gats 0 a q n; \
    mg a v; mg q v; mg a; mg q q; mg a T30; mg q T30; mg a v T30; mg a R30 v; mg m1 N30; mg m1 v; mg m2 N30 v; \
    ma n; ma q; ma n MD D2; ma q MD; ma m3 N0; ma m4 N0 MD; ma s; ma n C1; ma n q; ms a S1|1; ms a 1|1; ms a 1 C1|1; \
    ms q 1 C1|1; ms a 1 C{cas a}|1; ms a 1 I C1|1; ms a 1 MA|1; ms q 1 MA|1; ms a 1 MA C1|1; ms a 1 ME|1; ms a 1 ME C1|1; ms a 1 q|1; \
    ms YWI= 1 b|1; mg YWI= v b; ma YWI= b; md YWI= b; md a C1; md q; md q I; md a I T30; mg a v; mg a v; ms a 1 I C2|1; md a; md a; \
    delete n; delete n; delete q noreply; set a 0 0 1|1; delete a noreply; set a 0 0 1|1; mn; version; verbosity 1; nonsense; \
    get; incr n x; flush_all 100; flush_all noreply; flush_all";

#[test]
fn a_gateway_counts_what_memcached_counts() {
    let Some(mut pair) = Pair::start("counting at a gateway", Whole::new) else { return };
    for line in COUNTING.split("; ") {
        let line = line.trim();
        pair.step(&line.replacen('|', "\\r\\n", 1));
        let sentinel = Sentinel::new(pair.steps);
        let theirs = text(&pair.memcached.ask(b"stats\r\n", &sentinel).bytes);
        pair.ours.cluster.turns(3_000);
        let ours = text(&pair.ours.ask(b"stats\r\n", &sentinel).bytes);
        let differing = COUNTED.map(|name| (name, statistic(&theirs, name), statistic(&ours, name)));
        let differing = differing.into_iter().filter(|(_, theirs, ours)| theirs.is_none() || theirs != ours);
        pair.differences.extend(
            differing.map(|(name, theirs, ours)| {
                format!("{line}: {name} is {theirs:?} at memcached, {ours:?} here")
            }),
        );
        assert!(pair.differences.is_empty(), "{:?}", pair.differences);
    }
    pair.finish();
}

fn statistic(stats: &str, name: &str) -> Option<u64> {
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")))?;
    line.trim().parse().ok()
}

fn play<S: Server>(mut pair: Pair<S>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/memcached/script.txt");
    for line in fs::read_to_string(path).unwrap().lines() {
        match line.strip_prefix("#sleep ") {
            Some(seconds) => {
                let seconds = seconds.parse().unwrap();
                sleep(Duration::from_secs(seconds));
                pair.ours.sleep(seconds);
            }
            None if line.is_empty() || line.starts_with('#') => {}
            // A datagram is no connection that could be closed.
            None if !S::IS_MEMCACHED && line.starts_with("quit") => {}
            None => pair.step(line),
        }
    }
    assert!(pair.steps > 400, "only {} steps", pair.steps);
    pair.finish();
}

// ---- random commands --------------------------------------------------------------------------------------------

/// A small generator of our own: the same commands on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const KEYS: [&str; 5] = ["a", "b", "c", "d", "YWJj"];
const VALUES: [&str; 10] =
    ["", "0", "1", "9", "99", "10 ", "abc", "18446744073709551615", "12345678901234567890123", "x y"];
/// Wide apart, so that a second more or less on one side decides nothing.
const TIMES: [&str; 8] = ["0", "0", "0", "-1", "1000", "5000", "1000000000", "x"];
const NUMBERS: [&str; 7] = ["0", "1", "5", "100", "18446744073709551615", "99999999999999999999", "z"];
const FLAGS: [&str; 22] = [
    "b", "c", "f", "h", "k", "l", "q", "s", "t", "u", "v", "I", "O7", "Oxyz", "T3000", "T0", "N2000",
    "R2500", "R500", "F5", "J13", "D7",
];

fn flags(dice: &mut Dice) -> String {
    let mut line = String::new();
    // A key in base64 makes an item on a miss: one of the listed differences.
    let vivify = |line: &str, flag: &str| {
        (flag == "b" && line.contains(" N")) || (flag == "N2000" && line.contains(" b"))
    };
    for _ in 0..dice.roll(6) {
        let flag = dice.one(&FLAGS);
        if !vivify(&line, flag) {
            line += " ";
            line += flag;
        }
    }
    match dice.roll(12) {
        0 => line += " C{cas a}",
        1 => line += " C{cas b -1}",
        2 => line += " C0",
        3 => line += " ?",
        _ => {}
    }
    line
}

fn mode(dice: &mut Dice, modes: &[&str]) -> String {
    if dice.roll(2) == 0 { String::new() } else { format!(" M{}", dice.one(modes)) }
}

fn random_step(dice: &mut Dice) -> String {
    let (key, value, time) = (dice.one(&KEYS), dice.one(&VALUES), dice.one(&TIMES));
    let noreply = dice.one(&["", "", "", " noreply", " x"]);
    match dice.roll(16) {
        0 => format!("get {key} {} {}", dice.one(&KEYS), dice.one(&KEYS)),
        1 => format!("gets {key}"),
        2 => format!("gat {time} {key} {}", dice.one(&KEYS)),
        3 | 4 => {
            let verb = dice.one(&["set", "add", "replace", "append", "prepend"]);
            format!("{verb} {key} {} {time} {}{noreply}\\r\\n{value}", dice.one(&NUMBERS), value.len())
        }
        5 => format!("cas {key} 1 {time} {} {{cas {key}}}{noreply}\\r\\n{value}", value.len()),
        6 => format!("cas {key} 1 0 {} {{cas {}}}\\r\\n{value}", value.len(), dice.one(&KEYS)),
        7 => format!("{} {key} {}{noreply}", dice.one(&["incr", "decr"]), dice.one(&NUMBERS)),
        8 => format!("touch {key} {time}{noreply}"),
        9 => format!("delete {key}{noreply}"),
        10 => format!("mg {key}{}", flags(dice)),
        11 | 12 => format!(
            "ms {key} {}{}{}\\r\\n{value}",
            value.len(),
            flags(dice),
            mode(dice, &["S", "E", "A", "P", "R", "x"])
        ),
        13 => format!("md {key}{}", flags(dice)),
        14 => format!("ma {key}{}{}", flags(dice), mode(dice, &["I", "+", "D", "-", "x"])),
        _ => match dice.roll(8) {
            0 => format!("flush_all{noreply}"),
            1 => format!("me {key}"),
            _ => format!("mg {key} v k O1"),
        },
    }
}

#[test]
fn random_commands_are_answered_as_memcached_does() {
    if let Some(pair) = Pair::start("random commands", Ours::new) {
        play_random(pair);
    }
}

#[test]
fn random_commands_are_answered_by_gateway_and_node_as_memcached_does() {
    if let Some(pair) = Pair::start("random commands at a gateway", Whole::new) {
        play_random(pair);
    }
}

/// True if every cas unique in a step is that of the key it is about, which has to be plain.
fn compares_its_own_cas(step: &str) -> bool {
    let key = step.split(' ').nth(1).unwrap_or_default();
    let uniques = step.split("{cas ").skip(1).map(|rest| rest.split([' ', '}']).next().unwrap_or_default());
    uniques.into_iter().all(|of| of == key)
}

fn play_random<S: Server>(mut pair: Pair<S>) {
    let mut dice = Dice(20_261_129);
    for _ in 0..4000 {
        let step = random_step(&mut dice);
        if S::IS_MEMCACHED || compares_its_own_cas(&step) {
            pair.step(&step);
        }
    }
    pair.finish();
}

// ---- datagrams --------------------------------------------------------------------------------------------------

/// Requests with one response each: memcached numbers the datagrams of each item of a multi-get on their own.
#[test]
fn datagrams_are_answered_as_memcached_does() {
    let Some(memcached) = Memcached::start("datagrams") else { return };
    let mut ours = Ours::new();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(memcached.address).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let long = format!("set long 7 0 5000\r\n{}\r\n", "x".repeat(5000));
    let exact = format!("set exact 0 0 1369\r\n{}\r\n", "y".repeat(1369));
    let steps = [
        "version\r\n",
        &long,
        &exact,
        "get long\r\n",
        "get exact\r\n",
        "mg long v s\r\n",
        "get none\r\n",
        "zz\r\n",
    ];
    for (id, step) in (0x0100_u16..).zip(steps) {
        // Not answered: no text, not one datagram of one; were they answered, the next comparison would fail.
        for wrong in
            [&[0, 9, 0, 0, 0, 1, 0, 0][..], b"\0\x09\0\0\0\x02\0\0mn\r\n", b"\0\x09\0\0\0\x01\0\0mn", b""]
        {
            assert_eq!(ours.serve_datagram(wrong).len(), 0);
            socket.send(wrong).unwrap();
        }
        let datagram = [&id.to_be_bytes(), &[0, 0, 0, 1, 0, 0][..], step.as_bytes()].concat();
        socket.send(&datagram).unwrap();
        let mut buffer = [0; 2000];
        for mine in ours.serve_datagram(&datagram) {
            let bytes = socket.recv(&mut buffer).unwrap();
            let (theirs, mine) = (text(&buffer[..bytes]), text(&mine));
            if !mine.contains("VERSION") {
                assert_eq!(mine, theirs, "{:?}", &step[..step.len().min(30)]);
            }
        }
    }
}
