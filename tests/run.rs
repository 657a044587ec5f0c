//! `isthmus run` on this machine, as a user sees it.

#[path = "support/run.rs"]
mod process;

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use process::{Run, assert_all_arrived, total};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

fn directory(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{test}"))
}

/// Runs a file, until the first frames have arrived.
fn carrying(test: &str, conf: &Path) -> Run {
    let mut run = Run::start_in(&directory(test), conf);
    run.wait_for("frames", |report| total(report, "sink", "frames_verified") > 0);
    run
}

/// Asks a run's telemetry socket.
fn ask(run: &Run, test: &str, question: &str) -> Value {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(telemetry(run, test)).unwrap()).unwrap();
    let mut answer = vec![0; 1 << 16];
    let mut receive =
        || (&socket).read(&mut answer).map(|n| String::from_utf8_lossy(&answer[..n]).into_owned());
    assert!(receive().unwrap().contains("max_output_len"));
    socket.send(question.as_bytes()).unwrap();
    serde_json::from_str(&receive().unwrap()).unwrap()
}

/// `dpdk_telemetry.v2`, perhaps with a number behind it, once it is there.
fn telemetry(run: &Run, test: &str) -> PathBuf {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        let prefixes = fs::read_dir(directory(test).join("dpdk")).into_iter().flatten().flatten();
        let files = prefixes.flat_map(|p| fs::read_dir(p.path()).into_iter().flatten().flatten());
        let mut named = files.filter(|f| f.file_name().to_string_lossy().starts_with("dpdk_telemetry.v2"));
        if let Some(found) = named.next() {
            return found.path();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no telemetry socket; {}", run.log())
}

/// Frames of 65 536 flows go through both ends of a relay; while they do, the telemetry socket answers.
#[test]
fn a_relay_in_one_process_loses_nothing_and_shows_it_on_the_socket() {
    let run = carrying("loopback", Path::new("conf/relay-loopback.toml"));
    let ask = |question| ask(&run, "loopback", question);
    let info = &ask("/isthmus/info")["/isthmus/info"];
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["workers"], serde_json::json!(["source/0", "relay-a/0", "relay-b/0", "sink/0"]));
    let workers = &ask("/isthmus/workers")["/isthmus/workers"];
    assert!(workers["relay_a/0"]["service"] == "relay" && workers["relay_a/0"]["drops"] == 0, "{workers}");
    let relay = &ask("/isthmus/workers,relay-b/0")["/isthmus/workers"];
    assert!(relay["counts"]["frames_received"].as_u64() > Some(0), "{relay}");
    let paths = &ask("/isthmus/paths")["/isthmus/paths"];
    assert_eq!(paths["relay_a/0/0"]["state"], "up", "{paths}");
    let pools = &ask("/isthmus/pools")["/isthmus/pools"];
    assert!(pools.as_object().is_some_and(|p| p.len() >= 4), "{pools}");
    for command in ["/isthmus/drops", "/isthmus/ports"] {
        assert!(ask(command)[command].is_object(), "{command}");
    }
    run.ask_to_end();
    let last = run.last_words();
    let made = total(&last, "source", "frames_made");
    assert!(made > 0);
    assert_all_arrived(&last, made);
}

/// SIGUSR1 brings a capture of every queue pair's last packets, which `decode` reads.
#[test]
fn flight_records_come_on_request() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flight-records");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let conf = fs::read_to_string(root.join("conf/relay-soft.toml")).unwrap();
    let conf = conf
        .replace("# flight_records = \".\"", &format!("flight_records = {:?}", dir.display().to_string()));
    let path = dir.join("relay.toml");
    fs::write(&path, conf).unwrap();
    let mut run = carrying("records", &path);
    run.signal("-USR1");
    let captures = || {
        let files = fs::read_dir(&dir).unwrap().flatten().map(|f| f.path());
        files.filter(|f| f.extension().is_some_and(|e| e == "pcapng")).collect::<Vec<_>>()
    };
    run.wait_for("captures", |_| captures().len() >= 2);
    run.ask_to_end();
    run.last_words();
    let told =
        Command::new(env!("CARGO_BIN_EXE_isthmus")).arg("decode").arg(&captures()[0]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("RC_") && told.contains("Conversation 1"), "{told}");
}

/// A wrapper may pass one wish to stop on twice: to the process, and to its group.
#[test]
fn one_wish_to_stop_may_come_as_two_signals() {
    let run = carrying("signals", Path::new("conf/relay-loopback.toml"));
    run.signal("-TERM");
    run.signal("-TERM");
    assert_eq!(run.last_words()["final"], true);
}

/// Why there can be no tap interface here.
fn no_tap() -> Option<&'static str> {
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let ip = Command::new("ip").arg("-V").output();
    match (tun, ip) {
        (Err(_), _) => Some("there is no /dev/net/tun"),
        (_, Err(_)) => Some("there is no ip command"),
        _ if !is_root() => Some("making a tap interface takes root"),
        _ => None,
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}

/// Asks with memcached's frame header in front until there is an answer, which is given without it.
fn ask_key(socket: &UdpSocket, request: &str) -> String {
    let datagram = [b"\0\x01\0\0\0\x01\0\0", request.as_bytes(), b"\r\n"].concat();
    let mut answer = [0; 2048];
    for _ in 0..50 {
        socket.send(&datagram).ok();
        if let Ok(n) = socket.recv(&mut answer) {
            return String::from_utf8_lossy(&answer[8.min(n)..n]).into_owned();
        }
    }
    panic!("no answer to {request:?}")
}

/// Gateway and memory node in one process, reached through the kernel: conf/kv-soft.toml as `scripts/run` shows it.
#[test]
fn a_key_is_set_and_read_through_a_tap_interface() {
    if let Some(why) = no_tap() {
        println!("SKIPPED: {why}");
        return;
    }
    let pid = std::process::id();
    let (interface, net) = (format!("kv{pid}"), format!("198.19.{}", pid % 256));
    let conf = fs::read_to_string("conf/kv-soft.toml").unwrap();
    let conf = conf.replace("isthmus0", &interface).replace("198.51.100", &net);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kv-conf");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("kv.toml");
    fs::write(&path, conf).unwrap();
    let mut run = Run::start_in(&directory("kv"), &path);
    let up = |report: &Value| {
        let paths = report["paths"].as_array().unwrap();
        paths.len() == 4 && paths.iter().all(|path| path["state"] == "up")
    };
    run.wait_for("connections", up);
    let host = format!("{net}.254");
    let given =
        Command::new("ip").args(["address", "add", &format!("{host}/24"), "dev", &interface]).status();
    assert!(given.unwrap().success());
    let socket = UdpSocket::bind((host.as_str(), 0)).unwrap();
    socket.connect((format!("{net}.1"), 11211)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(ask_key(&socket, "set greeting 7 0 5\r\nhello"), "STORED\r\n");
    assert_eq!(ask_key(&socket, "get greeting"), "VALUE greeting 7 5\r\nhello\r\nEND\r\n");
    assert_eq!(ask_key(&socket, "get nothing"), "END\r\n");
    run.ask_to_end();
    let last = run.last_words();
    // A question may have been asked more than once; an answer is counted whether it was read or not.
    let count = |name| total(&last, "gateway", name);
    assert!(count("kv_reads") > 0 && count("kv_get_hits") > 0 && count("kv_get_misses") > 0, "{last}");
    assert_eq!(count("kv_gets"), count("kv_get_hits") + count("kv_get_misses"));
    assert_eq!(count("kv_requests"), count("kv_gets") + count("kv_mutations"));
    assert_eq!(count("kv_replies"), count("kv_requests"));
    assert_eq!((count("kv_unanswered"), count("kv_server_errors"), count("kv_malformed")), (0, 0, 0));
    let held = |name| total(&last, "memory", name);
    assert_eq!((held("kv_items"), held("kv_item_bytes")), (1, "greetinghello".len() as u64));
    assert!(held("kv_data_bytes") > 200 << 20 && held("kv_calls_served") > 0, "{last}");
}

/// Clients, gateway and memory node in one process, over frames: conf/kv-load.toml with less to do.
#[test]
fn clients_in_frames_verify_every_value() {
    let conf = fs::read_to_string("conf/kv-load.toml").unwrap();
    let conf = conf.replace("keys = 10000", "keys = 2000").replace("measure_s = 5", "measure_s = 1");
    let mut run = Run::start("kv-load", &conf);
    let (mut load, mut last) = (Value::Null, Value::Null);
    while let Some(report) = run.report() {
        if report["load"].is_object() {
            load = report["load"].clone();
        } else {
            last = report;
        }
    }
    assert!(load["good"] == true && load["losses"] == 0, "{load}");
    assert!(load["requests"].as_u64() > Some(500), "{load}");
    let count = |name| total(&last, "gateway", name);
    assert_eq!(count("kv_server_errors"), 0, "{last}");
    assert!(count("kv_requests") >= load["requests"].as_u64().unwrap(), "{last}");
    assert_eq!(count("kv_requests"), count("kv_replies") + count("kv_unanswered"), "{last}");
    // Every place is known from the answer to the write that came first: one READ a GET.
    assert!(count("kv_reads") >= count("kv_gets") && count("kv_gets") > 500, "{last}");
    assert!(count("kv_bucket_reads") * 100 <= count("kv_gets"), "{last}");
}

/// A gateway and three memory nodes, two of which share the keys at first.
const THREE_NODES: &str = r#"
poll = "adaptive"
[eal]
lcores = "0@0,1@0"
[[link]]
name = "clients"
ports = ["asks", "answers"]
mtu = 4200
[fabric]
transport = "loopback"
[[node]]
name = "load"
service = "load"
ports = ["asks"]
[node.load]
addresses = ["198.51.100.2/24"]
server = "198.51.100.1:11211"
keys = 2000
value_bytes = 200
measure_s = 40
[[node]]
name = "gateway"
service = "kv"
ports = ["answers"]
[node.kv]
addresses = ["198.51.100.1/24"]
nodes = ["one", "two"]
generation = 1
node_workers_max = 1
[service.memory]
arena_bytes = 16777216
seats = 1
gateway_workers_max = 1
[[node]]
name = "one"
service = "memory"
[[node]]
name = "two"
service = "memory"
[[node]]
name = "three"
service = "memory"
"#;

/// SIGHUP: a node comes, what cannot change is refused by name, a node goes; clients verify every value meanwhile.
#[test]
fn memory_nodes_come_and_go_by_a_reload() {
    let mut run = Run::start("kv-reload", THREE_NODES);
    let path = run.conf().to_owned();
    let text = fs::read_to_string(&path).unwrap();
    let again = |run: &Run, from: &str, to: &str| {
        fs::write(&path, text.replace(from, to)).unwrap();
        run.signal("-HUP");
    };
    let up = |nodes: u64| move |report: &Value| total(report, "gateway", "kv_nodes_up") == nodes;
    let served = |node: &'static str| move |report: &Value| total(report, node, "kv_calls_served") > 100;
    run.wait_for("both nodes", |r| up(2)(r) && served("one")(r) && served("two")(r));
    let list = "nodes = [\"one\", \"two\"]\ngeneration = 1";

    again(&run, list, "nodes = [\"one\", \"three\", \"two\"]\ngeneration = 2");
    run.wait_for("the third node", |r| up(3)(r) && served("three")(r));

    for (from, to, line) in [
        ("seats = 1", "seats = 2", "service.memory.seats = 2: cannot change while everything runs"),
        (list, "nodes = [\"one\"]\ngeneration = 2", "set generation = 3 here"),
        (list, "nodes = [\"one\"\ngeneration = 3", "not taken over"),
        ("keys = 2000", "keyz = 2000", "did you mean `keys`?"),
    ] {
        again(&run, from, to);
        run.wait_for_log(line);
    }
    let report = run.report().unwrap();
    assert!(up(3)(&report), "{report}");

    again(&run, list, "nodes = [\"three\", \"two\"]\ngeneration = 3");
    run.wait_for("the first node to leave", |report| {
        let paths = report["paths"].as_array().unwrap();
        let of = |node: &str| paths.iter().filter(|p| p["node"] == node && p["state"] == "up").count();
        up(2)(report) && of("one") == 0 && of("gateway") == 4
    });
    run.ask_to_end();
    let (mut load, mut last) = (Value::Null, Value::Null);
    while let Some(report) = run.report() {
        if report["load"].is_object() {
            load = report["load"].clone();
        } else {
            last = report;
        }
    }
    let log = run.log();
    assert!(load["good"] == true && load["requests"].as_u64() > Some(500), "{load}\n{log}");
    assert_eq!(last["unclean"], serde_json::json!([]), "{log}");
    assert!(log.contains("one has left"), "{log}");
    // By TCP the ends say that they are ready; that RDMA gets through is known from answers.
    let ready = log.find("two at 127.0.0.1 has its queue pairs ready").expect(&log);
    let answered = log.find("every memory node has answered over RDMA").expect(&log);
    assert!(ready < answered && !log.contains("connected"), "{log}");
}

/// Nobody can read what it says: it carries on, drains, and leaves nothing below the runtime directory.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let dir = directory("unheard");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
    command.args(["--no-huge", "--", "run", "conf/source-sink.toml"]).env("RUNTIME_DIRECTORY", &dir);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = command.stderr(full()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let id = child.id().to_string();
    let kill = |signal: &str| assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    let started = Instant::now();
    while fs::read_dir(dir.join("dpdk")).map_or(0, Iterator::count) == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    // What it says of a list that has not changed is lost as well.
    kill("-HUP");
    std::thread::sleep(Duration::from_millis(200));
    kill("-TERM");
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    let left = fs::read_dir(dir.join("dpdk")).unwrap().flatten().map(|prefix| prefix.path());
    let files: usize = left.map(|prefix| fs::read_dir(prefix).unwrap().count()).sum();
    assert_eq!(files, 0, "files of DPDK are left");
}

/// A process that is killed without hugepages leaves no files in the runtime directory, and no directory of its own.
#[test]
fn a_killed_process_leaves_nothing_that_piles_up() {
    let dir = directory("killed");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
    command.args(["--no-huge", "--", "run", "conf/source-sink.toml"]).env("RUNTIME_DIRECTORY", &dir);
    let none = std::process::Stdio::null;
    let mut child = command.stderr(none()).stdout(none()).spawn().unwrap();
    let left = || -> Vec<PathBuf> {
        let prefixes = fs::read_dir(dir.join("dpdk")).into_iter().flatten().flatten();
        prefixes
            .flat_map(|prefix| fs::read_dir(prefix.path()).into_iter().flatten().flatten())
            .map(|e| e.path())
            .collect()
    };
    let is_up = || left().iter().any(|path| path.ends_with("dpdk_telemetry.v2"));
    let started = Instant::now();
    while !is_up() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left(), [dir.join("dpdk/rte/dpdk_telemetry.v2")]);
}

/// What DPDK would start without is named, and nothing runs.
#[test]
fn a_device_that_cannot_be_made_is_named() {
    let dir = directory("missing");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    let conf = dir.join("missing.toml");
    let with = |device: &str| {
        let nodes = "[[node]]\nname = \"sink\"\nservice = \"sink\"\nports = [\"in\"]\n";
        fs::write(&conf, format!("[[port]]\nname = \"in\"\ndevice = \"{device}\"\n{nodes}")).unwrap();
    };
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
        command.args(["--no-huge"]).args(words).args(["--", "run"]).arg(&conf);
        let output = command.env("RUNTIME_DIRECTORY", &dir).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    with("net_af_packet0,iface=no-such-face");
    let said = run(&[]);
    assert!(
        said.contains("port[in].device: \"net_af_packet0,iface=no-such-face\" could not be made"),
        "{said}"
    );
    with("net_null0");
    let said = run(&["--vdev", "net_pcap0,rx_pcap=/no/such/file"]);
    assert!(
        said.contains("eal.vdev or --vdev: \"net_pcap0,rx_pcap=/no/such/file\" could not be made"),
        "{said}"
    );
    with("net_tap0,iface=lo");
    let said = run(&[]);
    assert!(said.contains("port in: there is an interface lo already"), "{said}");
}

/// One end of the key-value service alone on its wire: enough to meet the other by TCP.
fn with_key(conf: &str, meeting: &str, key: &Path) -> String {
    let text = fs::read_to_string(conf).unwrap();
    let device = |line: &str| match line.trim_start() {
        rest if rest.starts_with("device = \"net_memif0") => "device = \"net_null1,no-rx=1\"".to_owned(),
        rest if rest.starts_with("device = \"net_tap0") => "device = \"net_null0,no-rx=1\"".to_owned(),
        rest if rest.starts_with("key = ") => format!("key_file = {key:?}"),
        _ => line.replace("127.0.0.1:7474", meeting),
    };
    text.lines().map(|line| device(line) + "\n").collect()
}

/// Keys that differ are a matter of configuration: both ends say so, and neither gives up.
#[test]
fn ends_with_different_keys_say_so() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-keys");
    fs::create_dir_all(&dir).unwrap();
    let key = |name: &str, letter: &str| {
        let path = dir.join(name);
        fs::write(&path, letter.repeat(64)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let meeting = process::meeting_place(474);
    let (ours, theirs) = (key("ours.key", "a"), key("theirs.key", "b"));
    let memory = with_key("conf/kv-memory-soft.toml", &meeting, &theirs);
    let gateway = with_key("conf/kv-gateway-soft.toml", &meeting, &ours);
    let mut memory = Run::start("keys-memory", &memory);
    let mut gateway = Run::start("keys-gateway", &gateway);
    for run in [&mut gateway, &mut memory] {
        run.wait_for_log("same key");
        run.assert_alive();
    }
    let said = [gateway.log(), memory.log()];
    assert!(said.iter().all(|log| !log.contains("aaaaaaaa") && !log.contains("bbbbbbbb")), "{said:?}");
    for run in [gateway, memory] {
        run.ask_to_end();
        run.last_words();
    }
}
