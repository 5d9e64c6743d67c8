//! A thousand idle connections with channels, and what they cost; more busy threads than CPUs.

use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use yasmin_measure::cpus;
use yasmin_tests::lab::{Knobs, Lab, artefact};
use yasmin_tests::netns::{Net, free_port};
use yasmin_tests::peer;
use yasmin_tests::process::{Process, eventually};

const COUNT: u64 = 1000;
const MESSAGE_BYTES: u64 = 64;

/// CPU time and memory are measured: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Two peers with `COUNT` connections, asleep.
#[track_caller]
fn crowd(lab: &Lab) -> [Process; 2] {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let count = COUNT.to_string();
    let mut one = lab.start("crowd a", &lab.a, peer!("crowd"), &words(&["listen", &count]));
    let port = one.expect("listening");
    let address = lab.a.v4().to_string();
    let arguments = words(&["connect", &address, &port, &count]);
    let mut two = lab.start("crowd b", &lab.b, peer!("crowd"), &arguments);
    two.expect("idle");
    [one, two]
}

#[track_caller]
fn finish(peers: [Process; 2]) {
    let [mut one, mut two] = peers;
    two.say("again");
    two.expect("checked");
    two.release();
    two.finish();
    one.finish();
}

/// Nanoseconds of CPU that both use in three seconds of doing nothing.
#[track_caller]
fn cpu_of_nothing(peers: &[Process; 2]) -> u64 {
    let used = || peers.iter().map(Process::cpu_ns).sum::<u64>();
    // Until the last of them has gone to sleep.
    let mut last = used();
    eventually(
        "peers that are asleep",
        || {
            std::thread::sleep(Duration::from_millis(50));
            let now = used();
            (now - std::mem::replace(&mut last, now) < 1_000_000).then_some(())
        },
        || format!("{} ns used", used()),
    );
    let before = used();
    std::thread::sleep(Duration::from_secs(3));
    used() - before
}

#[test]
fn idle_connections_use_no_cpu() {
    let _alone = ALONE.lock();
    let lab = Lab::plain(Net::Loopback);
    let peers = crowd(&lab);
    let plain_ns = cpu_of_nothing(&peers);
    finish(peers);

    let lab = Lab::new(Net::Loopback, Knobs::default());
    let peers = crowd(&lab);
    let ns = cpu_of_nothing(&peers);
    eprintln!(
        "{COUNT} idle connections in 3 s: plain TCP {plain_ns} ns of CPU, with channels {ns}"
    );
    if lab.proves() {
        let status = lab.status().expect("a broker");
        let with_channel =
            status.connections.iter().filter(|one| one.reason.is_none()).count() as u64;
        assert!(with_channel >= COUNT * 9 / 10, "only {with_channel} channels");
        let parked = status
            .connections
            .iter()
            .flat_map(|one| &one.ends)
            .filter(|end| end.sends.state == "parked")
            .count() as u64;
        assert!(parked >= 2 * with_channel, "only {parked} directions parked");
    }
    // 0.3 % of one CPU over what plain TCP uses.
    assert!(ns <= plain_ns + 10_000_000, "{ns} ns of CPU, plain TCP {plain_ns}");
    finish(peers);
}

#[test]
fn idle_connections_use_little_memory() {
    let _alone = ALONE.lock();
    let used = |peers: &[Process; 2]| peers.iter().map(Process::memory_bytes).sum::<u64>();
    let lab = Lab::plain(Net::Loopback);
    let peers = crowd(&lab);
    let plain_bytes = used(&peers);
    finish(peers);

    let lab = Lab::new(Net::Loopback, Knobs::default());
    let peers = crowd(&lab);
    let bytes = used(&peers);
    let each = bytes.saturating_sub(plain_bytes) / COUNT;
    let set_aside = lab.status().map_or(0, |status| status.broker.memory_used_bytes / COUNT);
    eprintln!(
        "an idle connection with a channel: {} KiB in use by both ends, {} KiB set aside",
        each >> 10,
        set_aside >> 10
    );
    if lab.proves() {
        assert!(set_aside > 0, "no channels");
    }
    assert!(each <= 150 << 10, "{each} bytes in use for each connection");
    finish(peers);
    if let Some(broker) = &lab.broker {
        eventually(
            "memory given back",
            || (broker.status().broker.memory_used_bytes == 0).then_some(()),
            || format!("{:?}", broker.status().broker),
        );
    }
}

/// More threads than CPUs at both ends, which wait for each other: nobody can watch for long, and they take turns.
///
/// By TCP each of their messages takes a sleep and a wake-up, and so it was by ring as long as the library slept on crowded
/// CPUs. Beside other tests, which work, it may sleep.
#[test]
fn threads_that_wait_for_each_other_go_by_ring_on_few_cpus() {
    let _alone = ALONE.lock();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let lab = Lab::new(Net::Loopback, Knobs::default());
        let rounds = chat(&lab, 16, 2);
        if !lab.proves() {
            return;
        }
        let total_bytes = 2 * rounds * MESSAGE_BYTES;
        let carried = lab.bytes_in_all();
        seen.push(format!("{} of {total_bytes} bytes by ring", carried.ring));
        eprintln!("{}", seen.last().expect("just pushed"));
        if lab.is_by_ring(carried, total_bytes, 80) {
            return;
        }
    }
    panic!("too little by ring, three times: {seen:?}");
}

/// So many connections, each with a thread at both ends, on two CPUs. How many round trips; every byte is compared.
#[track_caller]
fn chat(lab: &Lab, connections: u32, seconds: u32) -> u64 {
    let cpus = cpus::allowed().expect("a list of CPUs");
    let cpus = cpus.iter().take(2).map(ToString::to_string).collect::<Vec<_>>().join(",");
    let address = format!("{}:{}", lab.a.v4(), free_port());
    let start = |site, role: &str| {
        let words = format!("pingpong --cpus {cpus} {role}");
        let words: Vec<_> = words.split(' ').map(ToOwned::to_owned).collect();
        lab.start(role, site, &artefact("yasmin"), &words)
    };
    let _server = start(&lab.a, &format!("serve {address}"));
    let listens = || TcpStream::connect(&address).ok().map(drop);
    eventually("a server that listens", listens, String::new);
    let role = format!(
        "client {address} --threads --connections {connections} --seconds {seconds} \
         --message-bytes {MESSAGE_BYTES}"
    );
    let mut client = start(&lab.b, &role);
    let rounds = client.expect("{\"rounds\":");
    client.finish();
    rounds.split(',').next().and_then(|count| count.parse().ok()).expect("a number of rounds")
}
