//! One user asks for everything, all the time: others are served meanwhile, and the log stays short.

mod support;

use rustix::event::epoll;
use rustix::fs::{FallocateFlags, fallocate};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::{Broker, is_root, tcp_pair, wait_until};
use yasmin_control::{CONTROL_VERSION, MESSAGE_BYTES, Role, ToBroker};
use yasmin_wire::layout::PAGE_BYTES;

const STRANGER: u32 = 65533;

/// One test at a time: a process that one of them forks has what the others have open then, and
/// keeps their connections open.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two processes of another user connect, are known, get a channel and its status, so many times.
fn others_are_served(broker: &Broker) {
    const TIMES: u64 = 20;
    let mut took: Vec<Duration> = (0..TIMES)
        .map(|id| {
            let begun = Instant::now();
            let (connector, acceptor) = tcp_pair("127.0.0.1:0");
            let (a, b) = (broker.client(), broker.client());
            a.offer(id, Role::Connector, &connector);
            b.offer(id, Role::Acceptor, &acceptor);
            assert_eq!((a.channel().id, b.channel().id), (id, id));
            begun.elapsed()
        })
        .collect();
    took.sort();
    let status = Instant::now();
    broker.status();
    println!(
        "a channel in {:?} (median) to {:?}, a status in {:?}",
        took[took.len() / 2],
        took[took.len() - 1],
        status.elapsed()
    );
}

/// More than the kernel keeps for a listener, and than a table of descriptors has by default.
#[test]
fn connections_of_one_user_hold_nobody_up() {
    if !is_root("connections_of_one_user_hold_nobody_up") {
        return;
    }
    let _alone = alone();
    let broker = Broker::start(&[]);
    let before = broker.descriptors();
    let hello = ToBroker::Hello { version: CONTROL_VERSION, comm: *b"flood\0\0\0\0\0\0\0\0\0\0\0" };
    for message in [&[][..], &hello.encode()] {
        let _floods = [1000, 2000].map(|most| broker.flood_as(STRANGER, message, most));
        others_are_served(&broker);
    }
    wait_until("all closed", || broker.descriptors() <= before);
}

/// A status costs by what there is to tell.
#[test]
fn questions_of_one_user_hold_nobody_up() {
    if !is_root("questions_of_one_user_hold_nobody_up") {
        return;
    }
    let _alone = alone();
    const MANY: u64 = 3000;
    let broker = Broker::start(&[]);
    let limit = rustix::process::Rlimit { current: Some(20_000), maximum: Some(20_000) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let pairs: Vec<_> = (0..MANY)
        .map(|_| (std::net::TcpStream::connect(at).unwrap(), listener.accept().unwrap().0))
        .collect();
    // They are the other user's own: he sees them all.
    let mut owner = broker.process_as(STRANGER);
    owner.client.greet();
    for (id, (connector, _)) in (0..).zip(&pairs) {
        owner.client.offer(id, Role::Connector, connector);
    }
    wait_until("all are seen", || broker.status().connections.len() as u64 == MANY);
    let asks = ToBroker::Status { version: CONTROL_VERSION }.encode();
    let _floods = [10, 500].map(|most| broker.flood_as(STRANGER, &asks, most));
    others_are_served(&broker);
}

/// Whoever touches memory into which somebody punches holes waits until there is none being punched.
#[test]
fn holes_of_one_user_hold_nobody_up() {
    if !is_root("holes_of_one_user_hold_nobody_up") {
        return;
    }
    let _alone = alone();
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let mut owner = broker.process_as(STRANGER);
    owner.client.greet();
    owner.client.offer(1, Role::Connector, &connector);
    owner.client.offer(2, Role::Acceptor, &acceptor);
    let ends = [owner.client.channel(), owner.client.channel()];
    let memory = ends.iter().flat_map(|end| [&end.channel, &end.side]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for memfd in memory.chain([owner.client.mailbox.as_ref().unwrap()]) {
            let is_over = &is_over;
            scope.spawn(move || {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                while !is_over.load(Ordering::Relaxed) {
                    let _ = fallocate(memfd, hole, 0, PAGE_BYTES as u64);
                }
            });
        }
        // Has the broker look there, as long as they are punched.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                broker.status_as(STRANGER);
            }
        });
        for class in 1..=9 {
            owner.client.send(ToBroker::Grow { id: 1, class });
        }
        others_are_served(&broker);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(broker.status().connections.len(), 1);
}

/// Each message to a socket wakes all epoll sets that watch it.
#[test]
fn watches_of_one_user_hold_nobody_up() {
    if !is_root("watches_of_one_user_hold_nobody_up") {
        return;
    }
    let _alone = alone();
    let broker = Broker::start(&[]);
    let watched = broker.connect_as(STRANGER);
    // A set watches a number once, and each copy has one.
    let copies: Vec<_> = (0..500).map(|_| watched.fd.try_clone().unwrap()).collect();
    let sets: Vec<_> = (0..600)
        .map(|_| {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            for copy in &copies {
                let data = epoll::EventData::new_u64(0);
                epoll::add(&set, copy, data, epoll::EventFlags::IN).unwrap();
            }
            set
        })
        .collect();
    let asks = ToBroker::Status { version: CONTROL_VERSION };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Where so many cost the broker too much, it hangs up.
            while !is_over.load(Ordering::Relaxed) && watched.send_raw(&asks.encode(), &[]).is_ok()
            {
                let _ = watched.receive_status();
            }
        });
        others_are_served(&broker);
        is_over.store(true, Ordering::Relaxed);
    });
    drop(sets);
}

/// What is not understood, from somebody who comes back at once.
#[test]
fn nonsense_of_one_user_fills_no_log() {
    if !is_root("nonsense_of_one_user_fills_no_log") {
        return;
    }
    let _alone = alone();
    let mut broker = Broker::start(&["--no-bpf"]);
    broker.terminate();
    let told = broker.directory.join("told");
    let stderr = Stdio::from(std::fs::File::create(&told).unwrap());
    broker.child = support::command(&broker.socket, &[]).stderr(stderr).spawn().unwrap();
    wait_until("the broker answers", || broker.answers());
    let begun = Instant::now();
    let old = ToBroker::Hello { version: 1, comm: [0; 16] }.encode();
    for message in [&[0xff; MESSAGE_BYTES][..], &[1], &old] {
        let _floods = [1, 100].map(|most| broker.flood_as(STRANGER, message, most));
        others_are_served(&broker);
    }
    let lines = std::fs::read_to_string(&told).unwrap().lines().count() as u64;
    // Each place that warns does so once in ten seconds; there are fewer than ten.
    let most = 10 * (1 + begun.elapsed().as_secs() / 10);
    assert!(lines <= most, "{lines} lines in {:?}", begun.elapsed());
}
