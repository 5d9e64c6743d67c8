//! How many references an epoll set has, as the broker counts them.
//!
//! Alone in its process: a program that another test starts would hold the set as well, from the
//! fork until the exec.

mod support;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::fs::File;
use support::{Broker, tcp_pair};
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, ToBroker};

/// Of the asker's own set, by all numbers of it, and of nothing else.
#[test]
fn references_to_an_epoll_set_are_counted() {
    if !support::is_root("references_to_an_epoll_set_are_counted") {
        return;
    }
    let broker = Broker::start(&[]);
    let count = |number: &BorrowedFd| {
        let client = broker.connect();
        let number = number.as_raw_fd() as u32;
        client.send(ToBroker::Count { version: CONTROL_VERSION, number });
        client.receive().0
    };
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    assert_eq!(count(&set.as_fd()), FromBroker::Counted { references: 1 });
    let other = set.try_clone().unwrap();
    assert_eq!(count(&set.as_fd()), FromBroker::Counted { references: 2 });
    drop(set);
    assert_eq!(count(&other.as_fd()), FromBroker::Counted { references: 1 });
    let no_proof = FromBroker::Decline { id: 0, reason: Decline::NoProof };
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    assert_eq!(count(&socket.as_fd()), no_proof);
    let file = File::open("/dev/null").unwrap();
    assert_eq!(count(&file.as_fd()), no_proof);
    let number = file.as_raw_fd() as u32;
    drop(file);
    let client = broker.connect();
    client.send(ToBroker::Count { version: CONTROL_VERSION, number: number + 500 });
    assert_eq!(client.receive().0, no_proof);
    let client = broker.connect();
    client.send(ToBroker::Count { version: CONTROL_VERSION, number: u32::MAX });
    assert_eq!(client.receive().0, no_proof);
    // Another user's process.
    let process = broker.process_as(65534);
    process.client.send(ToBroker::Count { version: CONTROL_VERSION, number: 0 });
    assert_eq!(process.client.receive().0, no_proof);
}
