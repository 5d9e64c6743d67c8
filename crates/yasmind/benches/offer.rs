//! How long two processes wait for their channel, from the second OFFER to CHANNEL; and how
//! much later a peer sees the end of a connection that was closed right after its OFFER, while
//! the broker may still have its duplicate.
//!
//! `cargo bench -p yasmin-yasmind`. Prints quantiles of the samples; judges nothing.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Read;
use std::time::Instant;
use support::{Broker, tcp_pair};
use yasmin_control::{Role, Then, ToBroker};

const SAMPLES: usize = 2000;

fn main() {
    for (name, arguments, idle) in [
        ("addresses", &["--no-bpf"][..], 0),
        ("bpf", &[][..], 0),
        ("bpf, 1000 idle processes", &[][..], 1000),
    ] {
        let broker = Broker::start(arguments);
        let crowd: Vec<_> = (0..idle).map(|_| broker.client()).collect();
        let (a, b) = (broker.client(), broker.client());
        let mut nanoseconds: Vec<_> = (0..SAMPLES as u64)
            .map(|id| {
                let (connector, acceptor) = tcp_pair("127.0.0.1:0");
                a.offer(id, Role::Connector, &connector);
                std::thread::sleep(std::time::Duration::from_micros(500));
                let start = Instant::now();
                b.offer(id, Role::Acceptor, &acceptor);
                b.channel();
                let elapsed = start.elapsed().as_nanos();
                a.channel();
                a.send(ToBroker::Release { id, then: Then::Closes });
                b.send(ToBroker::Release { id, then: Then::Closes });
                elapsed
            })
            .collect();
        print(&format!("{name}: offer to channel"), &mut nanoseconds);
        drop(crowd);
    }
    let broker = Broker::start(&[]);
    let client = broker.client();
    for offers in [false, true] {
        let mut nanoseconds: Vec<_> = (0..SAMPLES as u64)
            .map(|id| {
                let (connector, mut acceptor) = tcp_pair("127.0.0.1:0");
                let start = Instant::now();
                if offers {
                    client.offer(id, Role::Connector, &connector);
                }
                drop(connector);
                assert_eq!(acceptor.read(&mut [0]).unwrap(), 0);
                let elapsed = start.elapsed().as_nanos();
                client.send(ToBroker::Release { id, then: Then::Closes });
                while client.readable(std::time::Duration::ZERO) {
                    client.declined();
                }
                elapsed
            })
            .collect();
        let name = if offers { "offer, close" } else { "close" };
        print(&format!("{name}, end of stream"), &mut nanoseconds);
    }
}

fn print(name: &str, nanoseconds: &mut [u128]) {
    nanoseconds.sort_unstable();
    let at = |share: f64| {
        let index = share * (nanoseconds.len() - 1) as f64;
        nanoseconds[index as usize] as f64 / 1e3
    };
    println!(
        "{name}, us: min {:.0}, median {:.0}, p90 {:.0}, p99 {:.0}, max {:.0}",
        at(0.0),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}
