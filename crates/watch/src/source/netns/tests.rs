//! What comes and goes is noticed at the next look. With real namespaces; skipped where none can
//! be made.

use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// What one test makes, a survey of another one would notice.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two namespaces, a and b, and what this test calls them.
struct Pair(String);

impl Pair {
    fn new(test: &str) -> Option<Self> {
        let pair = Self(format!("yn{}{test}", std::process::id()));
        let made =
            ["a", "b"].into_iter().all(|end| pair.ip(&format!("netns add {}-{end}", pair.0)));
        if !made {
            eprintln!("skipped: no network namespaces can be made here");
        }
        made.then_some(pair)
    }

    fn ip(&self, line: &str) -> bool {
        Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success())
    }

    fn join(&self, link: &str) {
        let name = &self.0;
        assert!(
            self.ip(&format!(
                "-n {name}-a link add {link} type veth peer name {link} netns {name}-b"
            ))
        );
    }

    /// A program in a, and once it is there.
    fn inhabit(&self) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-a", self.0), "sleep", "600"]);
        let child = command.spawn().unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", child.id());
        while std::fs::read_link(&theirs).is_ok_and(|there| there == own) {
            std::thread::yield_now();
        }
        child
    }

    /// Edges between the two, and whether one is fresh; the processes in them.
    fn read(&self, netns: &mut Netns) -> (usize, bool, usize) {
        let Ok(reading) = netns.read() else { return (0, false, 0) };
        let name = format!("netns:{}-", self.0);
        let links = reading.layout.links.iter().zip(&reading.counters);
        let between: Vec<_> =
            links.filter(|(link, _)| link.a.to_string().starts_with(&name)).collect();
        let fresh = between.iter().any(|(_, counter)| counter.fresh);
        let functions = reading.layout.functions.iter().filter(|one| one.name.starts_with(&name));
        (between.len(), fresh, functions.map(|one| one.processes().len()).sum())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in ["a", "b"] {
            let _ = self.ip(&format!("netns delete {}-{end}", self.0));
        }
    }
}

/// As if the last survey and search had taken no time and ended now: the next ones would be due
/// in some seconds, and sooner only for a reason.
fn rest(netns: &mut Netns) {
    let last = Some((Instant::now(), Duration::ZERO));
    (netns.survey.last, netns.search.last) = (last, last);
}

#[test]
fn links_that_come_and_go_tell_of_themselves() {
    let _turn = alone();
    let Some(pair) = Pair::new("l") else { return };
    let mut netns = Netns::new();
    assert_eq!(pair.read(&mut netns), (0, false, 0));
    pair.join("one");
    rest(&mut netns);
    assert!(matches!(pair.read(&mut netns), (1, _, _)));
    rest(&mut netns);
    assert_eq!(pair.read(&mut netns), (1, false, 0));
    pair.join("two");
    rest(&mut netns);
    assert_eq!(pair.read(&mut netns), (2, true, 0));
    assert!(pair.ip(&format!("-n {}-b link delete one", pair.0)));
    rest(&mut netns);
    assert_eq!(pair.read(&mut netns), (1, false, 0));
}

#[test]
fn names_that_come_and_go_are_seen() {
    let _turn = alone();
    let mut netns = Netns::new();
    let _ = netns.read();
    rest(&mut netns);
    let Some(pair) = Pair::new("n") else { return };
    pair.join("one");
    assert!(matches!(pair.read(&mut netns), (1, ..)));
    rest(&mut netns);
    let name = pair.0.clone();
    drop(pair);
    // The sockets in it kept it alive; they are closed now.
    assert_eq!(Pair(name).read(&mut netns), (0, false, 0));
}

#[test]
fn processes_are_found_without_asking_for_links_again() {
    let _turn = alone();
    let Some(pair) = Pair::new("p") else { return };
    pair.join("one");
    let mut netns = Netns::new();
    assert_eq!(pair.read(&mut netns), (1, false, 0));
    let mut inhabitant = pair.inhabit();
    rest(&mut netns);
    let surveyed = netns.survey.last;
    netns.search.last = None;
    assert_eq!(pair.read(&mut netns), (1, false, 1));
    inhabitant.kill().unwrap();
    inhabitant.wait().unwrap();
    assert_eq!(netns.survey.last, surveyed);
    // Somebody tried to move it.
    netns.doubt();
    assert_eq!(pair.read(&mut netns), (1, false, 0));
}
