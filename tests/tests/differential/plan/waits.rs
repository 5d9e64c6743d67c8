//! Threads that sleep and what wakes them, and conversations.

use super::{Plan, Target, index};
use crate::program::{End, Waker};

/// Waits end after so long, so that one that is told nothing says so.
const PATIENCE_MS: u32 = 3000;

impl Plan<'_> {
    pub(super) fn sleep(
        &mut self,
        target: &Target,
        call: &str,
        waker: Waker,
    ) -> Result<(), String> {
        let Some(peer) = self.any(target.conn, target.end.other()) else { return Ok(()) };
        let events = self.events(target)?;
        let side = self.side(target).clone();
        let is_quiet = events == "out"
            && !side.nonblocking
            && !side.receive_timeout
            && !side.is_odd
            && target.prefix.is_empty();
        let peer_ended = self.side(&peer).has_ended_writing;
        let ends = matches!(waker, Waker::Shutdown | Waker::Close | Waker::Signal { .. });
        if !is_quiet || peer_ended || call == "pollhup" && !ends {
            return Ok(());
        }
        let name = &target.name;
        let is_unseen = call.starts_with("bare") || matches!(call, "aiopoll" | "signalled");
        if call == "signalled" && !side.announces {
            return Ok(());
        }
        // What it sleeps in would be left behind by a signal.
        if is_unseen && matches!(waker, Waker::Signal { .. }) {
            return Ok(());
        }
        // What the call sleeps in is to be interrupted, and no wait for a channel before that.
        if is_unseen || matches!(waker, Waker::Signal { .. }) {
            self.does(target.end, format!("recv {name} 100 dontwait"))?;
        }
        let command = match (call, waker) {
            ("recv", _) => format!("recv {name} 5000"),
            ("peek", _) => format!("recv {name} 5000 peek"),
            ("waitall", Waker::Send(len)) => format!("recv {name} {len} waitall"),
            ("waitall", _) => format!("recv {name} 100 waitall"),
            ("poll", _) => format!("poll {name} in -1"),
            ("pollhup", _) => format!("poll {name} rdhup -1"),
            ("signalled", _) => {
                self.does(target.end, "signalled".to_owned())?;
                format!("signalled {PATIENCE_MS}")
            }
            ("barepoll" | "bareppoll" | "bareselect" | "aiopoll", _) => {
                format!("{call} {name} in {PATIENCE_MS}")
            }
            ("bareepwait", _) => {
                self.does(target.end, "epoll S".to_owned())?;
                self.does(target.end, format!("epadd S {name} in+rdhup"))?;
                format!("bareepwait S {PATIENCE_MS}")
            }
            _ => {
                self.does(target.end, "epoll S".to_owned())?;
                self.does(target.end, format!("epadd S {name} in+rdhup"))?;
                match call {
                    "pollset" => "poll S in -1".to_owned(),
                    "outerwait" => {
                        self.does(target.end, "epoll O".to_owned())?;
                        self.does(target.end, "epadd O S in".to_owned())?;
                        "epwait O -1".to_owned()
                    }
                    _ => "epwait S -1".to_owned(),
                }
            }
        };
        if let Waker::Signal { restarts } = waker {
            let how = if restarts { "restart" } else { "once" };
            self.does(target.end, format!("handler {how}"))?;
        }
        self.does(target.end, format!("async T {command}"))?;
        self.does(target.end, "asleep T".to_owned())?;
        match waker {
            Waker::Send(len) => {
                let result = self.on(&peer, &format!("send {len} nosignal"))?;
                self.moved(&peer, &result, true);
            }
            Waker::Shutdown => {
                self.on(&peer, "shutdown wr")?;
                self.side(&peer).has_ended_writing = true;
            }
            Waker::Close => {
                self.close(&peer)?;
                // Somebody else still has it open.
                if let Some(peer) = self.any(peer.conn, peer.end) {
                    self.on(&peer, "shutdown wr")?;
                    self.side(&peer).has_ended_writing = true;
                }
            }
            Waker::Signal { restarts } => {
                self.does(target.end, "kick T".to_owned())?;
                if restarts && command.starts_with("recv") {
                    self.does(target.end, "asleep T".to_owned())?;
                    let len = if call == "waitall" { 100 } else { 10 };
                    let result = self.on(&peer, &format!("send {len} nosignal"))?;
                    self.moved(&peer, &result, true);
                }
            }
        }
        let result = self.does(target.end, "join T".to_owned())?;
        if matches!(call, "recv" | "waitall") {
            self.moved(target, &result, false);
        }
        if matches!(call, "epwait" | "bareepwait" | "pollset" | "outerwait") {
            self.does(target.end, "close S".to_owned())?;
        }
        if call == "outerwait" {
            self.does(target.end, "close O".to_owned())?;
        }
        Ok(())
    }

    /// The other end's descriptor, if both ends are as they were after connecting.
    fn both_plain(&mut self, target: &Target) -> Result<Option<Target>, String> {
        let Some(peer) = self.any(target.conn, target.end.other()) else { return Ok(None) };
        let is_plain = |side: &super::Side| !side.is_odd && !side.has_ended_writing;
        if !self.sides[target.conn].iter().all(is_plain) {
            return Ok(None);
        }
        for one in [target, &peer] {
            if self.side(one).receive_timeout || self.events(one)? != "out" {
                return Ok(None);
            }
        }
        Ok(Some(peer))
    }

    pub(super) fn talk(
        &mut self,
        target: &Target,
        len: usize,
        rounds: usize,
        waits: [&str; 2],
    ) -> Result<(), String> {
        let Some(peer) = self.both_plain(target)? else { return Ok(()) };
        // Neither may sleep in a send while the other one does.
        let len = len.max(1);
        for (end, role, waits) in [(target, "first", waits[0]), (&peer, "second", waits[1])] {
            let Target { prefix, name, .. } = end;
            let command = format!("{prefix}async T pingpong {name} {role} {len} {rounds} {waits}");
            self.does(end.end, command)?;
        }
        for end in [target, &peer] {
            self.does(end.end, format!("{}join T", end.prefix))?;
        }
        let moved = (len * rounds) as u64;
        for side in &mut self.sides[target.conn] {
            side.sent += moved;
            side.received += moved;
        }
        Ok(())
    }

    fn pace(&mut self, bytes_per_s: u32) {
        self.stage.pace(bytes_per_s);
        self.note(End::A, format!("pace {bytes_per_s}"), None);
    }

    pub(super) fn stream(
        &mut self,
        target: &Target,
        len: usize,
        wait: &str,
        pace: Option<u32>,
        seed: u64,
    ) -> Result<(), String> {
        let Some(peer) = self.both_plain(target)? else { return Ok(()) };
        if let Some(bytes_per_s) = pace {
            self.pace(bytes_per_s);
        }
        let Target { prefix, name, .. } = target;
        self.does(target.end, format!("{prefix}async T gather {name} {len} {wait}"))?;
        self.on(&peer, &format!("trickle {len} {seed}"))?;
        self.does(target.end, format!("{prefix}join T"))?;
        if pace.is_some() {
            self.pace_no_more(target, &peer)?;
        }
        self.sides[target.conn][index(peer.end)].sent += len as u64;
        self.side(target).received += len as u64;
        Ok(())
    }

    fn pace_no_more(&mut self, target: &Target, peer: &Target) -> Result<(), String> {
        self.pace(0);
        // Nothing is held back any more once this has come.
        self.on(peer, "sendall 1")?;
        self.on(target, "gather 1 poll")?;
        self.side(peer).sent += 1;
        self.side(target).received += 1;
        Ok(())
    }

    pub(super) fn overtake(
        &mut self,
        target: &Target,
        first: usize,
        then: usize,
        wait: &str,
        bytes_per_s: u32,
    ) -> Result<(), String> {
        /// What a loop does between two waits: the other end sends meanwhile.
        const BUSY_US: u32 = 20_000;
        let Some(peer) = self.both_plain(target)? else { return Ok(()) };
        // Who sleeps takes an offer back, so what is sent next goes by TCP.
        self.on(target, "poll in 1")?;
        self.pace(bytes_per_s);
        self.on(&peer, &format!("sendall {first}"))?;
        let Target { prefix, name, .. } = target;
        let len = first + then;
        self.does(target.end, format!("{prefix}async T gather {name} {len} {wait} {BUSY_US}"))?;
        self.on(&peer, &format!("sendall {then}"))?;
        self.does(target.end, format!("{prefix}join T"))?;
        self.side(&peer).sent += len as u64;
        self.side(target).received += len as u64;
        self.pace_no_more(target, &peer)
    }
}
