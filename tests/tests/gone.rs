//! Channels whose memory goes, as a guest's does when it moves: the connection goes on by TCP, and
//! gets another channel in mid-life. Each byte is checked.
//!
//! What a guest's broker says of memory that went is said here to ends of one kernel, again and
//! again, by a word in their side pages (spec/wire.md 6.4). Needs root, as a look at the broker's
//! mappings does.
//!
//! Holds: spec/wire.md 13.3.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::status::bytes_in_all;
use yasmin_tests::stream::{Config, Exchange, Role, RxForm, TxForm, WaitForm};

/// Where `gone` lies in a side page.
const GONE: u64 = 12;

/// Says of every `nth` end that the broker knows, counted from `from`, that its memory went; how many
/// there were.
fn lose(broker: u32, from: usize, nth: usize) -> usize {
    let Ok(maps) = std::fs::read_dir(format!("/proc/{broker}/map_files")) else { return 0 };
    let is_side = |map: &std::path::PathBuf| {
        std::fs::read_link(map).is_ok_and(|name| name.to_string_lossy().contains("yasmin-side"))
    };
    let maps: Vec<_> =
        maps.flatten().map(|map| map.path()).filter(is_side).skip(from).step_by(nth).collect();
    let said = |map: &std::path::PathBuf| {
        let page = OpenOptions::new().read(true).write(true).open(map);
        page.is_ok_and(|page| page.write_all_at(&1u32.to_ne_bytes(), GONE).is_ok())
    };
    maps.into_iter().filter(said).count()
}

/// Channels come soon, and no call waits for one: the other end may be asleep.
fn soon() -> Knobs {
    Knobs { promote_messages: Some(2), ..Knobs::default() }
}

/// Runs a stream while memory goes, of both ends at once or of one at a time.
#[track_caller]
fn run(lab: &Lab, config: &Config) {
    let what = |name: &str, config: &Config| format!("{name} ({})", config.words().join(" "));
    let listener = Config { role: Role::Listen, ..config.clone() };
    let name = what("listener", &listener);
    let mut one = lab.start(&name, &lab.a, peer!("stream"), &listener.words());
    let port = one.expect("listening").parse().expect("a port");
    let connector = Config { role: Role::Connect, port, ..config.clone() };
    let name = what("connector", &connector);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(broker) = lab.broker.as_ref().map(yasmin_tests::lab::BrokerProcess::pid) {
            let is_over = &is_over;
            scope.spawn(move || {
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    lose(broker, turn % 2, [1, 2][turn / 2 % 2]);
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut two = lab.start(&name, &lab.b, peer!("stream"), &connector.words());
            two.expect("done");
            one.expect("done");
            one.release();
            two.release();
            one.finish();
            two.finish();
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// So many connections had so many channels, and bytes went by ring.
#[track_caller]
fn prove(lab: &Lab, connections: u64) {
    let Some(status) = lab.status() else { return };
    let bytes = bytes_in_all(&status);
    eprintln!("{connections} connections, {} channels, {bytes:?}", status.broker.channels_total);
    assert!(status.broker.channels_total >= 2 * connections, "{status:#?}");
    assert!(bytes.ring > 0, "{status:#?}");
}

/// Every form of waiting with every form of sending, and over them all forms of receiving.
#[track_caller]
fn matrix(net: Net, knobs: &Knobs) {
    let lab = Lab::new(net, knobs.clone());
    let mut count = 0;
    for (row, wait) in WaitForm::ALL.iter().copied().enumerate() {
        for (column, tx) in TxForm::ALL.iter().copied().enumerate() {
            let rx = RxForm::ALL[(row + column * 3) % RxForm::ALL.len()];
            run(
                &lab,
                &Config {
                    address: lab.a.v4(),
                    seed: (row * 10 + column) as u64,
                    up_bytes: 20_000_000,
                    down_bytes: 15_000_000,
                    tx,
                    rx,
                    wait,
                    half_close: column % 2 == 0,
                    ..Config::default()
                },
            );
            count += u64::from(tx != TxForm::Splice && rx != RxForm::Splice);
        }
    }
    prove(&lab, count);
}

#[test]
fn streams() {
    matrix(Net::Loopback, &soon());
}

#[test]
fn streams_between_namespaces_without_spinning() {
    matrix(Net::Netns, &soon().spin(0));
}

#[test]
fn streams_with_chaos() {
    matrix(Net::Loopback, &soon().chaos(50, 1));
}

/// Requests, where nothing but the next byte wakes the one that waits for it.
#[track_caller]
fn requests(knobs: Knobs, rounds: u64, max_bytes: usize) {
    let lab = Lab::new(Net::Netns, knobs);
    for (row, wait) in WaitForm::ALL.iter().copied().enumerate() {
        run(
            &lab,
            &Config {
                address: lab.a.v4(),
                seed: row as u64,
                exchange: Exchange::Echo,
                rounds,
                max_bytes,
                tx: TxForm::Mixed,
                rx: RxForm::Mixed,
                wait,
                nodelay: true,
                up_bytes: u64::MAX,
                down_bytes: u64::MAX,
                ..Config::default()
            },
        );
    }
    prove(&lab, 1);
}

#[test]
fn small_requests() {
    for knobs in [soon(), soon().spin(0), soon().chaos(100, 3)] {
        requests(knobs, 2000, 200);
    }
}

#[test]
fn large_requests() {
    for knobs in [soon(), soon().spin(0), soon().chaos(100, 4)] {
        requests(knobs, 1500, 200_000);
    }
}
