//! Checked streams in both directions: every form of call, every form of waiting, on the
//! library's defaults, without spinning, and with parking and opening at random moments.
//!
//! How much goes by ring depends on what else the machine does, as spinning gives way to other
//! programs; the shares asked for here are those of a crowded machine.
//!
//! `YASMIN_TEST_SEED` varies sizes and pauses; `YASMIN_TEST_ROUNDS` repeats with further seeds.

use std::net::IpAddr;

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::status::Bytes;
use yasmin_tests::stream::{Config, Exchange, Pause, Role, RxForm, TxForm, WaitForm};

fn number(key: &str, default: u64) -> u64 {
    std::env::var(key).ok().map_or(default, |text| {
        text.parse().unwrap_or_else(|error| panic!("{key}={text}: {error}"))
    })
}

/// Seeds of this run.
fn seeds() -> impl Iterator<Item = u64> {
    let first = number("YASMIN_TEST_SEED", 1);
    (0..number("YASMIN_TEST_ROUNDS", 1)).map(move |round| first + 1000 * round)
}

/// How often a load is run at most.
const TIMES: u64 = 3;

/// Runs `load` with every seed, each time with other bytes.
#[track_caller]
fn assert_by_ring(lab: &Lab, percent: u64, mut load: impl FnMut(u64) -> (Bytes, u64)) {
    for seed in seeds() {
        lab.assert_by_ring_of(TIMES, percent, |time| load(seed + 100 * time));
    }
}

/// Runs one stream between the lab's sites; what went by ring and by TCP.
#[track_caller]
fn run(lab: &Lab, listener: &Config, connector: &Config) -> Bytes {
    let listener = Config { role: Role::Listen, ..listener.clone() };
    let what = |name: &str, config: &Config| format!("{name} ({})", config.words().join(" "));
    let name = what("listener", &listener);
    let mut one = lab.start(&name, &lab.a, peer!("stream"), &listener.words());
    let port = one.expect("listening").parse().expect("a port");
    let connector = Config { role: Role::Connect, port, ..connector.clone() };
    let name = what("connector", &connector);
    let mut two = lab.start(&name, &lab.b, peer!("stream"), &connector.words());
    two.expect("done");
    one.expect("done");
    let carried = lab.bytes_of(two.pid());
    one.release();
    two.release();
    one.finish();
    two.finish();
    carried
}

/// Runs every case also after one has failed, up to a few, so that a report shows a pattern.
struct Cases {
    failures: u32,
    run: u32,
}

impl Cases {
    const fn new() -> Self {
        Self { failures: 0, run: 0 }
    }

    #[track_caller]
    fn run(&mut self, lab: &Lab, listener: &Config, connector: &Config) -> Bytes {
        let case = std::panic::AssertUnwindSafe(|| run(lab, listener, connector));
        self.run += 1;
        std::panic::catch_unwind(case).unwrap_or_else(|_| {
            self.failures += 1;
            if self.failures == 5 {
                self.finish();
            }
            Bytes::default()
        })
    }

    #[track_caller]
    fn finish(&self) {
        assert_eq!(self.failures, 0, "so many of {} cases failed, see above", self.run);
    }
}

/// Is the program's splice on the socket: such a direction stays on TCP.
fn splices(config: &Config) -> bool {
    config.tx == TxForm::Splice || config.rx == RxForm::Splice
}

/// Every form of waiting with every form of sending, and over them all forms of receiving.
#[track_caller]
fn matrix(net: Net, knobs: &Knobs, percent: u64) {
    let lab = Lab::new(net, knobs.clone());
    assert_by_ring(&lab, percent, |seed| {
        let mut cases = Cases::new();
        let (mut carried, mut total) = (Bytes::default(), 0);
        for (row, wait) in WaitForm::ALL.iter().copied().enumerate() {
            for (column, tx) in TxForm::ALL.iter().copied().enumerate() {
                let config = Config {
                    address: lab.a.v4(),
                    seed: seed + (row * 10 + column) as u64,
                    up_bytes: 1_500_000,
                    down_bytes: 1_000_000,
                    tx,
                    rx: RxForm::ALL[(row + column * 3) % RxForm::ALL.len()],
                    wait,
                    half_close: column % 2 == 0,
                    ..Config::default()
                };
                let bytes = cases.run(&lab, &config, &config);
                if !splices(&config) {
                    carried.ring += bytes.ring;
                    carried.tcp += bytes.tcp;
                    total += config.up_bytes + config.down_bytes;
                }
            }
        }
        eprintln!("{net:?} {knobs:?}: {} of {total} bytes by ring", carried.ring);
        cases.finish();
        lab.assert_some_by_ring(carried.ring);
        (carried, total)
    });
}

#[test]
fn matrix_on_loopback() {
    matrix(Net::Loopback, &Knobs::at_once(), 1);
}

#[test]
fn matrix_between_namespaces() {
    matrix(Net::Netns, &Knobs::at_once(), 1);
}

#[test]
fn matrix_on_loopback_without_spinning() {
    matrix(Net::Loopback, &Knobs::at_once().spin(0), 1);
}

#[test]
fn matrix_between_namespaces_without_spinning() {
    matrix(Net::Netns, &Knobs::at_once().spin(0), 1);
}

#[test]
fn matrix_on_loopback_with_chaos() {
    matrix(Net::Loopback, &Knobs::at_once().chaos(50, 1).first_class(1), 1);
}

#[test]
fn matrix_between_namespaces_with_chaos() {
    // Of a smaller ring a busy machine gives one send in a hundred: what it does not hold goes by TCP.
    matrix(Net::Netns, &Knobs::at_once().chaos(200, 2).first_class(3), 1);
}

/// Parked at random, a connection carries one ring at a time: of the smallest ones nobody can say
/// how much that is.
#[test]
fn matrix_of_the_smallest_rings_with_chaos() {
    matrix(Net::Netns, &Knobs::at_once().chaos(200, 3), 0);
}

/// One asks, the other answers, in every form of waiting.
#[track_caller]
fn request_response(knobs: &Knobs, max_bytes: usize, percent: u64) {
    let lab = Lab::new(Net::Netns, knobs.clone());
    assert_by_ring(&lab, percent, |seed| {
        let mut cases = Cases::new();
        let mut carried = Bytes::default();
        for (row, wait) in WaitForm::ALL.iter().copied().enumerate() {
            let config = Config {
                address: lab.a.v4(),
                seed: seed + row as u64,
                exchange: Exchange::Echo,
                rounds: 400,
                max_bytes,
                tx: TxForm::Mixed,
                rx: RxForm::Mixed,
                wait,
                nodelay: true,
                // WaitAll must not ask for more than the peer sends before it waits itself.
                up_bytes: u64::MAX,
                down_bytes: u64::MAX,
                ..Config::default()
            };
            let bytes = cases.run(&lab, &config, &config);
            carried.ring += bytes.ring;
            carried.tcp += bytes.tcp;
        }
        cases.finish();
        eprintln!("echo {max_bytes} {knobs:?}: {carried:?}");
        (carried, carried.ring + carried.tcp)
    });
}

#[test]
fn small_requests() {
    request_response(&Knobs::at_once(), 200, 10);
}

#[test]
fn small_requests_without_spinning() {
    request_response(&Knobs::at_once().spin(0), 200, 0);
}

#[test]
fn small_requests_with_chaos() {
    request_response(&Knobs::at_once().chaos(100, 3), 200, 1);
}

#[test]
fn large_requests() {
    request_response(&Knobs::at_once(), 200_000, 10);
}

#[test]
fn large_requests_with_chaos() {
    request_response(&Knobs::at_once().chaos(100, 4), 200_000, 1);
}

/// Programs that are told nothing get a channel once they have proved busy.
#[test]
fn defaults_promote_busy_connections() {
    for net in [Net::Loopback, Net::Netns] {
        let lab = Lab::new(net, Knobs::default());
        assert_by_ring(&lab, 10, |seed| {
            let config = Config {
                address: lab.a.v4(),
                seed,
                up_bytes: 64 << 20,
                down_bytes: 64 << 20,
                wait: WaitForm::Epoll,
                ..Config::default()
            };
            let bytes = run(&lab, &config, &config);
            eprintln!("{net:?}: {bytes:?}");
            (bytes, config.up_bytes + config.down_bytes)
        });
    }
}

/// TCP on loopback takes a megabyte from each side before anybody reads; so must this.
#[test]
fn both_write_before_they_read() {
    let mut cases = Cases::new();
    for knobs in [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 5)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let mut ring_bytes = 0;
        for (nth, wait) in [WaitForm::Block, WaitForm::Poll, WaitForm::EpollEdge, WaitForm::Busy]
            .into_iter()
            .enumerate()
        {
            let config = Config {
                address: lab.a.v4(),
                seed: 50 + nth as u64,
                exchange: Exchange::Mutual,
                max_bytes: 1 << 20,
                tx: [TxForm::Write, TxForm::SendMsg, TxForm::SendFile, TxForm::Send][nth],
                rx: RxForm::Mixed,
                wait,
                ..Config::default()
            };
            ring_bytes += cases.run(&lab, &config, &config).ring;
        }
        lab.assert_some_by_ring(ring_bytes);
    }
    cases.finish();
}

/// Full rings, and waits longer than anyone spins.
#[test]
fn slow_readers_and_slow_writers() {
    let slow = Pause { longest_us: 2000, every: 20 };
    let mut cases = Cases::new();
    for knobs in [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 6)] {
        let lab = Lab::new(Net::Netns, knobs);
        let mut ring_bytes = 0;
        for (nth, wait) in WaitForm::ALL.iter().copied().enumerate() {
            let fast = Config {
                address: lab.a.v4(),
                seed: 70 + nth as u64,
                up_bytes: 6 << 20,
                down_bytes: 2 << 20,
                max_bytes: 64 << 10,
                tx: TxForm::Mixed,
                rx: RxForm::Mixed,
                wait,
                ..Config::default()
            };
            let reader = Config { rx_pause: slow, ..fast.clone() };
            let writer = Config { tx_pause: slow, ..fast.clone() };
            ring_bytes += cases.run(&lab, &reader, &writer).ring;
        }
        lab.assert_some_by_ring(ring_bytes);
    }
    cases.finish();
}

/// Many small writes into a reader that takes large bites, and the other way round.
#[test]
fn small_pieces() {
    let mut cases = Cases::new();
    for knobs in [Knobs::at_once(), Knobs::at_once().chaos(50, 7)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let mut ring_bytes = 0;
        for (nth, wait) in WaitForm::ALL.iter().copied().enumerate() {
            let large = Config {
                address: lab.a.v4(),
                seed: 90 + nth as u64,
                up_bytes: 100_000,
                down_bytes: 100_000,
                wait,
                ..Config::default()
            };
            let small = Config { max_bytes: 9, ..large.clone() };
            ring_bytes += cases.run(&lab, &large, &small).ring;
            ring_bytes += cases.run(&lab, &small, &large).ring;
        }
        lab.assert_some_by_ring(ring_bytes);
    }
    cases.finish();
}

/// Small kernel buffers: TCP fills up at once when the ring does.
///
/// Not smaller: with 4 KiB plain TCP loses segments to its own receive buffer and waits for
/// timers that double (2 MiB each way over loopback: not through in 8 s).
#[test]
fn small_kernel_buffers() {
    let mut cases = Cases::new();
    for knobs in [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 8)] {
        let lab = Lab::new(Net::Netns, knobs);
        let mut ring_bytes = 0;
        for (nth, wait) in WaitForm::ALL.iter().copied().enumerate() {
            let config = Config {
                address: lab.a.v4(),
                seed: 110 + nth as u64,
                up_bytes: 2 << 20,
                down_bytes: 2 << 20,
                buffer_bytes: 16384,
                tx: TxForm::Mixed,
                rx: RxForm::Mixed,
                nodelay: true,
                wait,
                ..Config::default()
            };
            ring_bytes += cases.run(&lab, &config, &config).ring;
        }
        lab.assert_some_by_ring(ring_bytes);
    }
    cases.finish();
}

/// The address families that a socket can mix.
#[test]
fn address_families() {
    for net in [Net::Loopback, Net::Netns] {
        let lab = Lab::new(net, Knobs::at_once());
        let v6_any: IpAddr = lab.a.v6();
        let ways = [
            ("IPv4", lab.a.v4(), lab.a.v4()),
            ("IPv6", v6_any, lab.a.v6()),
            ("IPv4-mapped", v6_any, lab.a.mapped()),
            ("IPv4 to a listener of both", v6_any, lab.a.v4()),
        ];
        for (name, listens_on, connects_to) in ways {
            for nonblocking_connect in [false, true] {
                let listener = Config {
                    address: listens_on,
                    up_bytes: 4 << 20,
                    down_bytes: 4 << 20,
                    wait: WaitForm::Poll,
                    nonblocking_connect,
                    ..Config::default()
                };
                let connector = Config { address: connects_to, ..listener.clone() };
                let bytes = run(&lab, &listener, &connector);
                eprintln!("{net:?} {name}: {bytes:?}");
                lab.assert_some_by_ring(bytes.ring);
            }
        }
    }
}

/// Connections one after the other in the same two processes, descriptors used again.
#[test]
fn one_connection_after_the_other() {
    for knobs in [Knobs::at_once(), Knobs::default(), Knobs::at_once().chaos(100, 9)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let config = Config {
            address: lab.a.v4(),
            up_bytes: 300_000,
            down_bytes: 300_000,
            connections: 100,
            ..Config::default()
        };
        let listener = Config { role: Role::Listen, ..config.clone() };
        let mut one = lab.start("listener", &lab.a, peer!("stream"), &listener.words());
        let port = one.expect("listening").parse().expect("a port");
        let connector = Config { role: Role::Connect, port, ..config };
        let mut two = lab.start("connector", &lab.b, peer!("stream"), &connector.words());
        one.release();
        two.release();
        one.finish();
        two.finish();
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}
