//! Peers and brokers that die, stop or talk nonsense: what is left must go on as over TCP.
//!
//! `YASMIN_TEST_KILLS` is how many peers are killed in each place (default 100).

use std::collections::BTreeSet;
use std::time::Duration;

use yasmin_tests::lab::{Knobs, Lab, Mode};
use yasmin_tests::netns::Net;
use yasmin_tests::pattern::Rng;
use yasmin_tests::peer;
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::script::Duo;
use yasmin_tests::stream::{Config, Exchange, Pause, Role, RxForm, TxForm, WaitForm};
use yasmin_tests::sys::debugger::Stopped;

/// What is in /dev/shm that could be ours.
fn shared_files() -> BTreeSet<String> {
    std::fs::read_dir("/dev/shm")
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().display().to_string()).collect()
        })
        .unwrap_or_default()
}

/// The broker's state when nothing is connected.
struct Baseline {
    memory_bytes: u64,
    descriptors: usize,
    shared_files: BTreeSet<String>,
}

impl Baseline {
    #[track_caller]
    fn take(lab: &Lab) -> Option<Self> {
        let broker = lab.broker.as_ref()?;
        Some(Self {
            memory_bytes: broker.status().broker.memory_used_bytes,
            descriptors: broker.process().descriptors(),
            shared_files: shared_files(),
        })
    }

    /// Waits until nothing more is held than at the start.
    #[track_caller]
    fn assert_back(&self, lab: &Lab) {
        let Some(broker) = &lab.broker else { return };
        eventually(
            "the broker as it was before",
            || {
                let status = broker.status();
                (status.broker.memory_used_bytes <= self.memory_bytes
                    && status.connections.is_empty()
                    && broker.process().descriptors() <= self.descriptors)
                    .then_some(())
            },
            || {
                format!(
                    "{} descriptors, first {}; memory first {}; {:#?}",
                    broker.process().descriptors(),
                    self.descriptors,
                    self.memory_bytes,
                    broker.status()
                )
            },
        );
        let new: Vec<_> = shared_files().difference(&self.shared_files).cloned().collect();
        let ours: Vec<_> = new.iter().filter(|name| name.contains("yasmin")).collect();
        assert!(ours.is_empty(), "left in /dev/shm: {new:?}");
    }
}

#[track_caller]
fn start_pair(lab: &Lab, listener: &Config, connector: &Config) -> [Process; 2] {
    let listener = Config { role: Role::Listen, ..listener.clone() };
    let mut one = lab.start("listener", &lab.a, peer!("stream"), &listener.words());
    let port = one.expect("listening").parse().expect("a port");
    let connector = Config { role: Role::Connect, port, ..connector.clone() };
    let two = lab.start("connector", &lab.b, peer!("stream"), &connector.words());
    [one, two]
}

/// Lets both end their connection, and sees that they end well.
#[track_caller]
fn finish_all(peers: &mut [Process]) {
    for peer in &mut *peers {
        peer.release();
    }
    for peer in peers {
        peer.finish();
    }
}

/// The word after `key=` in a peer's report.
#[track_caller]
fn field<'a>(report: &'a str, key: &str) -> &'a str {
    report
        .split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("no {key} in {report:?}"))
}

fn kills() -> u64 {
    std::env::var("YASMIN_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// Kills one of two busy peers at a random moment, again and again.
#[track_caller]
fn killed_under_load(net: Net, knobs: Knobs, seed: u64) {
    let lab = Lab::new(net, knobs);
    let before = Baseline::take(&lab);
    let mut rng = Rng::new(seed);
    let mut ring_bytes = 0;
    for nth in 0..kills() {
        let config = Config {
            address: lab.a.v4(),
            seed: seed + nth,
            exchange: Exchange::Survive,
            tx: TxForm::Mixed,
            rx: RxForm::Mixed,
            wait: WaitForm::ALL[rng.below(WaitForm::ALL.len() as u64) as usize],
            ..Config::default()
        };
        let slow = Config { rx_pause: Pause { longest_us: 500, every: 10 }, ..config.clone() };
        let (one, two) = match rng.below(3) {
            0 => (&config, &config),
            1 => (&slow, &config),
            _ => (&config, &slow),
        };
        let mut peers = start_pair(&lab, one, two);
        for peer in &mut peers {
            peer.expect("connected");
        }
        // Not to wait for anything: the moment is what is random.
        std::thread::sleep(Duration::from_micros(rng.below(40_000)));
        ring_bytes += lab.bytes_of(peers[0].pid()).ring;
        let [mut victim, mut survivor] = peers;
        if rng.below(2) == 0 {
            std::mem::swap(&mut victim, &mut survivor);
        }
        victim.kill();
        let report = survivor.expect("ended");
        let (sending, receiving) = (field(&report, "send"), field(&report, "receive"));
        assert!(
            sending.ends_with(":EPIPE") || sending.ends_with(":ECONNRESET"),
            "kill {nth}: the survivor's sending ended with {sending}: {report}\n{config:?}"
        );
        // TCP gives EPIPE to a receiver whose stream had ended when the reset came.
        let ends = [":ECONNRESET", ":EPIPE"];
        assert!(
            receiving == "eof" || ends.iter().any(|end| receiving.ends_with(end)),
            "kill {nth}: the survivor's receiving ended with {receiving}: {report}\n{config:?}"
        );
        survivor.finish();
    }
    eprintln!("{net:?}: {} killed, {ring_bytes} bytes by ring before", kills());
    if lab.proves() {
        assert!(ring_bytes > 0, "no bytes by ring: nothing was tested");
    }
    if let Some(before) = before {
        before.assert_back(&lab);
    }
}

#[test]
fn killed_under_load_on_loopback() {
    killed_under_load(Net::Loopback, Knobs::at_once(), 1);
}

#[test]
fn killed_under_load_between_namespaces() {
    killed_under_load(Net::Netns, Knobs::at_once(), 2);
}

#[test]
fn killed_under_load_with_chaos() {
    killed_under_load(Net::Loopback, Knobs::at_once().chaos(100, 12), 3);
}

#[test]
fn killed_under_load_with_defaults() {
    killed_under_load(Net::Loopback, Knobs::default(), 4);
}

/// What a killed program had sent is there, then comes the end.
#[test]
fn killed_senders_bytes_arrive() {
    for len in [1, 100, 5000, 60_000, 1_000_000] {
        let mut duo = Duo::new(Lab::new(Net::Loopback, Knobs::at_once()), peer!("script"));
        duo.warm("C");
        assert_eq!(duo.a(&format!("sendall C {len}")), len.to_string());
        duo.a.kill();
        assert_eq!(duo.b("drain C"), format!("{len} then eof"));
    }
}

/// Nobody reads and then dies: the writer learns of it, asleep in send or not.
#[test]
fn writers_to_a_killed_reader_end() {
    let mut duo = Duo::new(Lab::new(Net::Loopback, Knobs::at_once()), peer!("script"));
    duo.warm("C");
    duo.b("async T sendall C 1000000000");
    duo.b("asleep T");
    duo.a.kill();
    let result = duo.b("join T");
    let end = result.split_once(" then ").map_or("no end", |(_, end)| end);
    assert!(["EPIPE", "ECONNRESET"].contains(&end), "{result}");
}

#[test]
fn small_messages_to_a_killed_reader_end() {
    let mut duo = Duo::new(Lab::new(Net::Loopback, Knobs::at_once()), peer!("script"));
    duo.warm("C");
    // These stay unread.
    for _ in 0..5 {
        assert_eq!(duo.b("send C 10"), "10");
    }
    duo.a.kill();
    let result = eventually(
        "an error for a writer whose reader is dead",
        || match duo.b("send C 10 nosignal").as_str() {
            "10" => None,
            other => Some(other.to_owned()),
        },
        String::new,
    );
    assert!(["EPIPE", "ECONNRESET"].contains(&result.as_str()), "{result}");
}

#[test]
fn sleepers_see_a_killed_peer() {
    for command in ["recv C 10", "recv C 1000 waitall", "poll C in -1", "epwait E -1"] {
        let mut duo = Duo::new(Lab::new(Net::Loopback, Knobs::at_once()), peer!("script"));
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+et");
        duo.b(&format!("async T {command}"));
        duo.b("asleep T");
        duo.a.kill();
        let result = duo.b("join T");
        let expected = if command.starts_with("recv") { "0" } else { "in" };
        assert!(result.contains(expected), "{command}: {result}");
    }
}

/// A peer that is stopped for a while is slow and nothing else.
#[test]
fn stopped_peers_go_on() {
    for knobs in [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 13)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let config = Config {
            address: lab.a.v4(),
            up_bytes: 24 << 20,
            down_bytes: 24 << 20,
            tx: TxForm::Mixed,
            rx: RxForm::Mixed,
            tx_pause: Pause { longest_us: 100, every: 4 },
            ..Config::default()
        };
        let mut peers = start_pair(&lab, &config, &config);
        for peer in &mut peers {
            peer.expect("connected");
        }
        let mut rng = Rng::new(5);
        for _ in 0..20 {
            let peer = &peers[rng.below(2) as usize];
            peer.freeze(true);
            std::thread::sleep(Duration::from_micros(rng.below(20_000)));
            peer.freeze(false);
            std::thread::sleep(Duration::from_micros(rng.below(5_000)));
        }
        for peer in &mut peers {
            peer.expect("done");
        }
        lab.assert_some_by_ring(lab.bytes_of(peers[0].pid()).ring);
        finish_all(&mut peers);
    }
}

/// Wherever a peer stops, between any two instructions of any call, the other side's calls do what
/// they do on TCP: bytes are taken as far as buffers go, what is there is read, nobody waits.
#[test]
fn a_peer_that_stops_anywhere_holds_up_nobody() {
    const SENT: usize = 2_000_000;
    const ANSWER: usize = 1000;
    const ANSWERS: usize = 10;
    let moods = [
        Knobs::default(),
        Knobs::at_once(),
        Knobs::at_once().spin(0),
        Knobs::at_once().chaos(100, 14),
    ];
    for (seed, knobs) in (6..).zip(moods) {
        let mut duo = Duo::new(Lab::new(Net::Loopback, knobs), peer!("script"));
        let mut rng = Rng::new(seed);
        duo.connect("C");
        duo.round_trips("C", 40);
        for nth in 0..40 {
            duo.quiet_b(&format!("async S sendall C {SENT}"));
            duo.quiet_b(&format!("async R recvall C {}", ANSWERS * ANSWER));
            std::thread::sleep(Duration::from_micros(rng.below(3_000)));
            // By a signal, and every other time by a debugger.
            let debugger = (nth % 2 == 1).then(|| Stopped::all_of(duo.b.pid()).unwrap());
            if debugger.is_none() {
                duo.b.freeze(true);
            }
            let mut got = 0;
            for _ in 0..ANSWERS {
                let sent = duo.quiet_a(&format!("send C {ANSWER} dontwait"));
                assert_eq!(sent, ANSWER.to_string());
                let received = duo.quiet_a("recv C 50000 dontwait");
                got += received.parse().unwrap_or_else(|_| {
                    assert_eq!(received, "EAGAIN");
                    0
                });
            }
            drop(debugger);
            duo.b.freeze(false);
            assert_eq!(duo.quiet_a(&format!("recvall C {}", SENT - got)), (SENT - got).to_string());
            assert_eq!(duo.quiet_b("join S"), SENT.to_string());
            assert_eq!(duo.quiet_b("join R"), (ANSWERS * ANSWER).to_string());
        }
        duo.lab.assert_some_by_ring(duo.lab.bytes_in_all().ring);
    }
}

#[test]
fn the_broker_dies_under_load() {
    let mut lab = Lab::new(Net::Loopback, Knobs::at_once());
    let config = Config {
        address: lab.a.v4(),
        up_bytes: 64 << 20,
        down_bytes: 64 << 20,
        tx: TxForm::Mixed,
        rx: RxForm::Mixed,
        wait: WaitForm::Epoll,
        ..Config::default()
    };
    let mut peers = start_pair(&lab, &config, &config);
    if lab.proves() {
        let pid = peers[1].pid();
        eventually(
            "bytes by ring",
            || (lab.bytes_of(pid).ring > 0).then_some(()),
            || format!("{:#?}", lab.status()),
        );
    }
    if let Some(mut broker) = lab.broker.take() {
        broker.kill();
    }
    for peer in &mut peers {
        peer.expect("done");
    }
    finish_all(&mut peers);

    // Nobody listens: new connections are plain TCP.
    let short = Config { up_bytes: 1 << 20, down_bytes: 1 << 20, ..config.clone() };
    for peer in &mut start_pair(&lab, &short, &short) {
        peer.expect("done");
        peer.release();
    }

    // A new broker serves new programs.
    if lab.mode != Mode::Tcp {
        lab.restart_broker();
    }
    let mut peers = start_pair(&lab, &short, &short);
    for peer in &mut peers {
        peer.expect("done");
    }
    lab.assert_some_by_ring(lab.bytes_of(peers[0].pid()).ring);
    finish_all(&mut peers);
}

/// Programs that were there before find the new broker with their new connections.
#[test]
fn running_programs_find_a_new_broker() {
    let mut duo = Duo::new(Lab::new(Net::Loopback, Knobs::at_once()), peer!("script"));
    duo.warm("C");
    if let Some(mut broker) = duo.lab.broker.take() {
        broker.kill();
    }
    duo.round_trips("C", 50);
    duo.connect("D");
    duo.round_trips("D", 50);
    if duo.lab.mode != Mode::Tcp {
        duo.lab.restart_broker();
    }
    let mut nth = 0;
    if duo.lab.proves() {
        eventually(
            "a channel from the new broker",
            || {
                let name = format!("N{nth}");
                nth += 1;
                duo.connect(&name);
                duo.round_trips(&name, 20);
                (duo.lab.bytes_in_all().ring > 0).then_some(())
            },
            String::new,
        );
    }
    duo.round_trips("C", 50);
    duo.round_trips("D", 50);
}

/// A broker that is there and does nothing must hold up nobody.
#[test]
fn a_stopped_broker_holds_up_nobody() {
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let config = Config {
        address: lab.a.v4(),
        up_bytes: 8 << 20,
        down_bytes: 8 << 20,
        connections: 20,
        ..Config::default()
    };
    if let Some(broker) = &lab.broker {
        broker.process().freeze(true);
    }
    let mut peers = start_pair(&lab, &config, &config);
    for peer in &mut peers {
        peer.release();
    }
    finish_all(&mut peers);
    if let Some(broker) = &lab.broker {
        broker.process().freeze(false);
    }
}

/// Environment of a peer that is told of a broker's socket that is none.
#[track_caller]
fn runs_without(lab: &Lab, socket: &str) {
    let config = Config {
        address: lab.a.v4(),
        up_bytes: 2 << 20,
        down_bytes: 2 << 20,
        connections: 3,
        ..Config::default()
    };
    let environment: Vec<_> = lab
        .environment()
        .into_iter()
        .map(
            |(key, value)| {
                if key == "YASMIN_SOCKET" { (key, socket.to_owned()) } else { (key, value) }
            },
        )
        .collect();
    let start = |name: &str, config: &Config| {
        let mut command = lab.a.command(peer!("stream"), environment.clone());
        Process::start(name, command.args(config.words()), &lab.registry)
    };
    let mut one = start("listener", &Config { role: Role::Listen, ..config.clone() });
    let port = one.expect("listening").parse().expect("a port");
    let mut two = start("connector", &Config { role: Role::Connect, port, ..config });
    for peer in [&mut one, &mut two] {
        peer.release();
    }
    for peer in [&mut one, &mut two] {
        peer.finish();
    }
}

#[test]
fn programs_run_without_a_broker() {
    for knobs in [Knobs::default(), Knobs::at_once()] {
        let lab = Lab::new(Net::Loopback, knobs);
        let folder = lab.folder.path().display().to_string();
        let file = format!("{folder}/file");
        std::fs::write(&file, "no socket").unwrap();
        let long = format!("{folder}/{}", "x".repeat(200));
        for socket in ["", "/", "nowhere", "/nonexistent/broker.sock", &folder, &file, &long] {
            runs_without(&lab, socket);
        }
    }
}

/// Root's programs and a user's own tell a broker of root's and of that user's, and nobody else's:
/// in a changed root, any user may have made the socket.
#[test]
fn a_broker_of_another_user_is_told_nothing() {
    use rustix::net::{RecvFlags, accept, listen, recv};
    use std::sync::atomic::{AtomicUsize, Ordering};
    static MESSAGES: AtomicUsize = AtomicUsize::new(0);
    const OTHER: u32 = 65534;
    // SAFETY: no memory involved.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    for (uid, is_told) in [(0, true), (OTHER, false)] {
        let lab = Lab::new(Net::Loopback, Knobs::default());
        let path = lab.folder.path().join("other.sock");
        let listener = brokers_socket(&path);
        MESSAGES.store(0, Ordering::SeqCst);
        // The thread ends with the test program: it waits for clients for ever.
        let (tell_ready, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: the raw call changes this thread alone. Who listens is who is asked about.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }, 0);
            listen(&listener, 16).unwrap();
            tell_ready.send(()).unwrap();
            while let Ok(client) = accept(&listener) {
                std::thread::spawn(move || {
                    let mut message = [0u8; 256];
                    while let Ok((_, 1..)) = recv(&client, &mut message, RecvFlags::empty()) {
                        MESSAGES.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        ready.recv().unwrap();
        runs_without(&lab, &path.display().to_string());
        if lab.mode != Mode::Tcp {
            assert_eq!(MESSAGES.load(Ordering::SeqCst) > 0, is_told, "user {uid}");
        }
    }
}

fn brokers_socket(path: &std::path::Path) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Something else answers on the broker's socket.
#[test]
fn programs_run_with_a_broker_that_talks_nonsense() {
    use rustix::net::{RecvFlags, SendFlags, accept, listen, recv, send};
    let answers: [(&str, Vec<u8>); 6] = [
        ("silence", Vec::new()),
        ("too little", vec![1; 7]),
        ("too much", vec![2; 4000]),
        ("noise", (0..64u8).map(|byte| byte.wrapping_mul(37)).collect()),
        ("a refusal", yasmin_control::FromBroker::Refused { version: 999 }.encode().to_vec()),
        (
            "a welcome without a mailbox",
            yasmin_control::FromBroker::Welcome { version: 1 }.encode().to_vec(),
        ),
    ];
    for (name, answer) in answers {
        let lab = Lab::new(Net::Loopback, Knobs::default());
        let path = lab.folder.path().join("nonsense.sock");
        let listener = brokers_socket(&path);
        listen(&listener, 16).unwrap();
        // The thread ends with the test program: it waits for clients for ever.
        std::thread::spawn(move || {
            while let Ok(client) = accept(&listener) {
                let answer = answer.clone();
                std::thread::spawn(move || {
                    let mut message = [0u8; 256];
                    while let Ok((_, 1..)) = recv(&client, &mut message, RecvFlags::empty()) {
                        if !answer.is_empty() {
                            let _ = send(&client, &answer, SendFlags::NOSIGNAL);
                        }
                    }
                });
            }
        });
        eprintln!("{name}");
        runs_without(&lab, &path.display().to_string());
    }
}

/// Connections come and go; what they took comes back.
#[test]
fn nothing_leaks_in_long_lived_programs() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let before = Baseline::take(&lab);
    let mut duo = Duo::new(lab, peer!("script"));
    let mut first = None;
    for nth in 0..300 {
        duo.connect("C");
        duo.round_trips("C", 3);
        duo.quiet_b("epoll E");
        duo.quiet_b("epadd E C in");
        duo.quiet_b("close C");
        duo.quiet_b("close E");
        duo.quiet_a("close C");
        if nth == 20 {
            first = Some([&duo.a, &duo.b].map(|peer| (peer.descriptors(), peer.mappings())));
        }
    }
    let last = [&duo.a, &duo.b].map(|peer| (peer.descriptors(), peer.mappings()));
    for (first, last) in first.unwrap_or_default().iter().zip(last) {
        assert!(last.0 <= first.0, "descriptors: {first:?}, then {last:?}");
        // Some mappings are kept to be used again.
        assert!(last.1 <= first.1 + 10, "mappings: {first:?}, then {last:?}");
    }
    let Duo { lab, a, b, .. } = duo;
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
    drop((a, b));
    if let Some(before) = before {
        before.assert_back(&lab);
    }
}
