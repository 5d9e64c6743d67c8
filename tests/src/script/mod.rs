//! Two `script` peers on one connection, and the comparison of what they saw on plain TCP with
//! what they see on rings.

pub mod grammar;

use std::path::Path;

use yasmin_control::Decline;

use crate::lab::{Knobs, Lab, Mode};
use crate::netns::Net;
use crate::process::Process;
use crate::status::End;

/// A pair of peers: `a` listens, `b` connects. Every logged command goes into the transcript.
pub struct Duo {
    pub lab: Lab,
    pub a: Process,
    pub b: Process,
    port: String,
    transcript: Vec<String>,
}

impl Duo {
    #[track_caller]
    pub fn new(lab: Lab, script: &Path) -> Self {
        let mut a = lab.start("a", &lab.a, script, &[]);
        let b = lab.start("b", &lab.b, script, &[]);
        let port = ask(&mut a, "listen L v6");
        assert!(port.parse::<u16>().is_ok(), "listen: {port}");
        Self { lab, a, b, port, transcript: Vec::new() }
    }

    /// One command to `a`, whose result must be the same on TCP and on rings.
    #[track_caller]
    pub fn a(&mut self, command: &str) -> String {
        let result = ask(&mut self.a, command);
        self.transcript.push(format!("a: {command} = {result}"));
        result
    }

    #[track_caller]
    pub fn b(&mut self, command: &str) -> String {
        let result = ask(&mut self.b, command);
        self.transcript.push(format!("b: {command} = {result}"));
        result
    }

    /// Commands whose results may differ, such as how much fits into a buffer.
    #[track_caller]
    pub fn quiet_a(&mut self, command: &str) -> String {
        ask(&mut self.a, command)
    }

    #[track_caller]
    pub fn quiet_b(&mut self, command: &str) -> String {
        ask(&mut self.b, command)
    }

    /// The port that `a` listens on.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Records something that must be the same on TCP and on rings.
    pub fn note(&mut self, text: impl std::fmt::Display) {
        self.transcript.push(text.to_string());
    }

    /// A connection that is called `name` at both ends, not used yet.
    #[track_caller]
    pub fn connect(&mut self, name: &str) {
        let command = format!("connect {name} {} {}", self.lab.a.v4(), self.port);
        // Both at once: the call that offers may wait until the other side offers too.
        self.b.say(&command);
        self.a.say(&format!("accept L {name}"));
        for (peer, what) in [(&mut self.b, "connect"), (&mut self.a, "accept")] {
            let result = peer.next_line();
            assert_eq!(result.as_deref(), Some("ok"), "{what}:\n{}", peer.output());
        }
    }

    /// A connection that has gone to and fro, so that on rings both directions are open.
    ///
    /// With TCP_NODELAY, because otherwise plain TCP holds the next step's bytes back until
    /// the last ones are acknowledged, which is up to 40 ms later.
    #[track_caller]
    pub fn warm(&mut self, name: &str) {
        self.connect(name);
        self.quiet_a(&format!("set {name} nodelay 1"));
        self.quiet_b(&format!("set {name} nodelay 1"));
        self.round_trips(name, 8);
        // The broker may have had no CPU so far.
        self.prove_in_time(name);
    }

    /// Fails when bytes have not gone by ring in both directions of every connection so far.
    #[track_caller]
    pub fn prove(&self, name: &str) {
        let carried = self.carried();
        assert!(carried, "no bytes by ring in both directions of {name}: {:#?}", self.lab.status());
    }

    /// The same, where the channel may come late: more round trips until it has.
    #[track_caller]
    pub fn prove_in_time(&mut self, name: &str) {
        for _ in 0..200 {
            if self.carried() {
                return;
            }
            self.round_trips(name, 4);
        }
        self.prove(name);
    }

    /// Where one end has to receive by TCP: fails when nothing has gone by ring at all.
    #[track_caller]
    pub fn prove_one_way(&self, name: &str) {
        if self.lab.proves() && self.lab.is_calm() {
            let carried = self.ends().iter().any(|end| end.sends.ring_bytes > 0);
            assert!(carried, "no bytes by ring in {name}: {:#?}", self.lab.status());
        }
    }

    /// Whether bytes went by ring in both directions of all connections of `b` so far.
    pub fn carried(&self) -> bool {
        if !self.lab.proves() || !self.lab.is_calm() {
            return true;
        }
        let ends = self.ends();
        ends.len() >= 2 && ends.iter().all(|end| end.sends.ring_bytes > 0)
    }

    /// Both ends of each connection of `b`.
    fn ends(&self) -> Vec<End> {
        let (pid, status) = (self.b.pid(), self.lab.status());
        status
            .iter()
            .flat_map(|status| &status.connections)
            .filter(|connection| connection.ends.iter().any(|end| end.pid == pid))
            // The scenario has set an option that needs TCP.
            .filter(|connection| connection.reason.as_deref() != Some(Decline::Option.describe()))
            .flat_map(|connection| connection.ends.clone())
            .collect()
    }

    #[track_caller]
    pub fn round_trips(&mut self, name: &str, count: usize) {
        for _ in 0..count {
            assert_eq!(self.quiet_b(&format!("sendall {name} 100")), "100");
            assert_eq!(self.quiet_a(&format!("recvall {name} 100")), "100");
            assert_eq!(self.quiet_a(&format!("sendall {name} 100")), "100");
            assert_eq!(self.quiet_b(&format!("recvall {name} 100")), "100");
        }
    }

    /// Sends a command to `a` without waiting for its result.
    #[track_caller]
    pub fn end_a(&mut self, command: &str) {
        tell(&mut self.a, command);
        let status = self.a.wait();
        self.transcript.push(format!("a: {command} ended it: {status}"));
    }

    #[track_caller]
    pub fn end_b(&mut self, command: &str) {
        tell(&mut self.b, command);
        let status = self.b.wait();
        self.transcript.push(format!("b: {command} ended it: {status}"));
    }

    fn finish(mut self) -> Vec<String> {
        for (name, peer) in [("a", &mut self.a), ("b", &mut self.b)] {
            peer.release();
            let status = peer.wait();
            if !status.success() {
                self.transcript.push(format!("{name} ended with {status}"));
            }
        }
        self.transcript
    }
}

/// Sends a command that the peer knows.
#[track_caller]
fn tell(peer: &mut Process, command: &str) {
    if let Err(expected) = grammar::check(command) {
        panic!("{command}: {expected}");
    }
    peer.say(command);
}

#[track_caller]
fn ask(peer: &mut Process, command: &str) -> String {
    tell(peer, command);
    match peer.next_line() {
        Some(result) => {
            assert!(!result.contains("script error"), "{command}: {result}");
            result
        }
        None => {
            let status = peer.wait();
            panic!("{command}: the peer ended with {status}\n{}", peer.output())
        }
    }
}

/// Runs `scenario` on plain TCP and on rings in several moods, and compares the transcripts.
#[track_caller]
pub fn compare(script: &Path, scenario: fn(&mut Duo)) {
    compare_on(Net::Loopback, script, scenario);
}

#[track_caller]
pub fn compare_on(net: Net, script: &Path, scenario: fn(&mut Duo)) {
    // Scenarios send some thousand bytes, which are to lie in the ring.
    compare_with(net, &Knobs::at_once().first_class(2), script, scenario);
}

/// The same, where the call that offers waits for its channel for so long at most.
#[track_caller]
pub fn compare_waiting(script: &Path, wait_ms: u32, scenario: fn(&mut Duo)) {
    let knobs = Knobs { promote_wait_ms: Some(wait_ms), ..Knobs::at_once() };
    compare_with(Net::Loopback, &knobs, script, scenario);
}

#[track_caller]
fn compare_with(net: Net, knobs: &Knobs, script: &Path, scenario: fn(&mut Duo)) {
    let moods = [
        ("rings", knobs.clone()),
        ("rings, no spinning", knobs.clone().spin(0)),
        ("rings, chaos", knobs.clone().chaos(100, 11)),
    ];
    compare_in(net, &moods, script, scenario);
}

/// The same in moods of the test's own choice.
#[track_caller]
pub fn compare_in(net: Net, moods: &[(&str, Knobs)], script: &Path, scenario: fn(&mut Duo)) {
    let play = |lab: Lab| {
        let mut duo = Duo::new(lab, script);
        scenario(&mut duo);
        duo.finish()
    };
    let expected = play(Lab::plain(net));
    for line in &expected {
        assert!(!line.contains("WRONG"), "on plain TCP: {line}");
    }
    for (mood, knobs) in moods {
        let got = play(Lab::new(net, knobs.clone()));
        let same = expected.iter().zip(&got).take_while(|(one, other)| one == other).count();
        assert!(
            same == expected.len() && same == got.len(),
            "{mood}: differs from plain TCP after\n  {}\nplain TCP: {}\n{mood}: {}",
            got[..same].join("\n  "),
            expected.get(same).map_or("(the end)", String::as_str),
            got.get(same).map_or("(the end)", String::as_str),
        );
        // Without a library there is nothing to vary.
        if Mode::from_env() == Mode::Tcp {
            break;
        }
    }
}
