//! Ways between two namespaces that translate addresses, and that forget connections on which
//! they see nothing. In C, for waits that do not sleep.
//!
//! Holds: tcp(7), socket(7).

use std::path::Path;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::{self, Net, Site};
use yasmin_tests::process::Process;

use crate::c::compile;

/// Runs shell `words` where the site is; false where the machine cannot do that.
fn set_up(site: &Site, words: &str) -> bool {
    let output = site.command(Path::new("sh"), []).args(["-c", words]).output().expect("sh");
    if !output.status.success() {
        eprintln!("skipped: {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}

/// Starts the listener, and the connector that does `what` with `address`: both are awake for so long first.
#[track_caller]
fn start(lab: &Lab, folder: &Folder, what: &str, address: &str, seconds: u32) -> [Process; 2] {
    let program = compile(folder, "paths", &["paths.c"], &[]);
    let seconds = seconds.to_string();
    let words = ["listen".to_owned(), seconds.clone()];
    let mut listener = lab.start("listener", &lab.a, &program, &words);
    let port = listener.expect("port");
    let words = [what.to_owned(), address.to_owned(), port, seconds];
    let connector = lab.start("connector", &lab.b, &program, &words);
    [listener, connector]
}

/// Exchanges messages awake for so long, connecting to `address`, and then by TCP.
#[track_caller]
fn exchange(lab: &Lab, address: &str, seconds: u32) {
    let folder = Folder::new();
    let [mut listener, mut connector] = start(lab, &folder, "connect", address, seconds);
    assert_eq!(connector.next_line().as_deref(), Some("arrived"));
    connector.finish();
    listener.finish();
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}

/// Connections are forgotten after two silent seconds, and what belongs to none is dropped.
#[test]
fn a_way_that_forgets_silent_connections() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    let lab = Lab::new(Net::Netns, Knobs::at_once());
    let forgets = "iptables -A INPUT -m conntrack --ctstate INVALID -j DROP && \
        iptables -A OUTPUT -m conntrack --ctstate INVALID -j DROP && \
        sysctl -w net.netfilter.nf_conntrack_tcp_loose=0 \
        net.netfilter.nf_conntrack_tcp_timeout_established=2";
    if set_up(&lab.a, forgets) && set_up(&lab.b, forgets) {
        exchange(&lab, &lab.a.v4.to_string(), 8);
    }
}

/// A user time-out of two seconds leaves a connection alone that is busy for longer, and ends it
/// once nothing gets through, though the ring still works.
#[test]
fn a_way_that_is_cut() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    for knobs in [None, Some(Knobs::at_once())] {
        let lab = match knobs {
            None => Lab::plain(Net::Netns),
            Some(knobs) => Lab::new(Net::Netns, knobs),
        };
        let folder = Folder::new();
        let [_listener, mut connector] = start(&lab, &folder, "cut", &lab.a.v4.to_string(), 4);
        assert_eq!(connector.next_line().as_deref(), Some("cut"));
        if !set_up(&lab.a, "iptables -A INPUT -p tcp -j DROP") {
            return;
        }
        assert_eq!(connector.next_line().as_deref(), Some("ETIMEDOUT"));
        connector.finish();
    }
}

/// What only goes one way goes on by ring where nothing comes back any more: of the bytes that go by TCP each
/// second, the first is never acknowledged, and no other one waits behind it. (TCP alone stops there.)
#[test]
fn a_way_back_that_is_cut() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    let lab = Lab::new(Net::Netns, Knobs::at_once());
    if !lab.proves() {
        return;
    }
    let folder = Folder::new();
    let [_listener, mut connector] = start(&lab, &folder, "drain", &lab.a.v4.to_string(), 1);
    assert_eq!(connector.next_line().as_deref(), Some("cut"));
    if set_up(&lab.a, "iptables -A INPUT -p tcp -j DROP") {
        assert_eq!(connector.next_line().as_deref(), Some("drained"));
        connector.finish();
    }
}

/// Neither end knows the other's addresses.
#[test]
fn addresses_that_are_translated_on_both_ends() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    let lab = Lab::new(Net::Netns, Knobs::at_once());
    let translates = format!(
        "ip route add 198.51.100.7 dev peer && \
         iptables -t nat -A OUTPUT -p tcp -d 198.51.100.7 -j DNAT --to-destination {} && \
         iptables -t nat -A POSTROUTING -p tcp -o peer -j MASQUERADE --to-ports 50000-50100",
        lab.a.v4
    );
    if set_up(&lab.b, &translates) {
        exchange(&lab, "198.51.100.7", 1);
    }
}
