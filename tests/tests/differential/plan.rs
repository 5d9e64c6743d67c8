//! A program's steps as commands to the two peers, decided while they run on plain TCP: what
//! would sleep for ever is left out, and after each step the kernel is given the time to
//! settle. What plain TCP then showed is what rings must show.

use std::time::{Duration, Instant};

use crate::program::{End, Place, Step, Waker};
use crate::stage::Stage;

/// A command and what became of it. `None`: it need not be the same.
#[derive(Clone, Debug)]
pub struct Line {
    pub end: End,
    pub command: String,
    pub result: Option<String>,
}

/// One end of a connection, as far as the plan has to know it.
#[derive(Clone, Default)]
struct Side {
    /// Name and whether it is the child's, of each descriptor that is open.
    open: Vec<(String, bool)>,
    nonblocking: bool,
    has_ended_writing: bool,
    sent: u64,
    received: u64,
    receive_timeout: bool,
    is_odd: bool,
    has_been_urgent: bool,
    was_watched: bool,
}

pub struct Plan<'a> {
    stage: &'a mut Stage,
    pub lines: Vec<Line>,
    sides: Vec<[Side; 2]>,
    /// How many registrations each set of each end was given; `None`: it does not exist.
    sets: [[Option<usize>; 2]; 2],
    /// Sets that a fork shares, and so are left alone.
    has_child: [bool; 2],
    /// Unix sockets to pass descriptors over, and whether the child has them.
    has_pair: [bool; 2],
    child_has_pair: [bool; 2],
}

const fn index(end: End) -> usize {
    match end {
        End::A => 0,
        End::B => 1,
    }
}

/// A descriptor to use: which connection, its name, and how the command begins.
struct Target {
    conn: usize,
    end: End,
    name: String,
    prefix: &'static str,
}

impl<'a> Plan<'a> {
    pub fn new(stage: &'a mut Stage) -> Self {
        Self {
            stage,
            lines: Vec::new(),
            sides: Vec::new(),
            sets: [[None; 2]; 2],
            has_child: [false; 2],
            has_pair: [false; 2],
            child_has_pair: [false; 2],
        }
    }

    /// Runs the steps on plain TCP; afterwards `lines` is what rings must do too.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        self.step(&Step::Connect { warm: true })?;
        for step in steps {
            self.step(step)?;
        }
        self.look_at_all()?;
        for conn in 0..self.sides.len() {
            for end in [End::A, End::B] {
                let side = &self.sides[conn][index(end)];
                if let Some((name, _)) = side.open.iter().find(|(_, child)| !child).cloned() {
                    self.does(end, format!("drainnow {name}"))?;
                }
            }
        }
        Ok(())
    }

    fn does(&mut self, end: End, command: String) -> Result<String, String> {
        let result = self.stage.ask(end, &command)?;
        self.lines.push(Line { end, command, result: Some(result.clone()) });
        Ok(result)
    }

    fn side(&mut self, target: &Target) -> &mut Side {
        &mut self.sides[target.conn][index(target.end)]
    }

    fn target(&self, at: Place) -> Option<Target> {
        let conn = at.conn % self.sides.len();
        let side = &self.sides[conn][index(at.end)];
        let child = at.in_child && self.has_child[index(at.end)];
        let names: Vec<_> = side.open.iter().filter(|(_, is_child)| *is_child == child).collect();
        let nth = usize::from(at.by_copy).min(names.len().checked_sub(1)?);
        let prefix = if child { "in P " } else { "" };
        Some(Target { conn, end: at.end, name: names[nth].0.clone(), prefix })
    }

    fn on(&mut self, target: &Target, rest: &str) -> Result<String, String> {
        let (verb, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
        let command = format!("{}{verb} {} {arguments}", target.prefix, target.name);
        self.does(target.end, command.trim_end().to_owned())
    }

    /// Quietly: the events that a poll gives now, on plain TCP.
    fn events(&mut self, target: &Target) -> Result<String, String> {
        let command = format!("{}poll {} in+out+rdhup+pri 0", target.prefix, target.name);
        self.stage.ask(target.end, &command)
    }

    fn has_input(&mut self, target: &Target) -> Result<bool, String> {
        let events = self.events(target)?;
        Ok(events.split('+').any(|event| ["in", "err", "hup"].contains(&event)))
    }

    fn unread(&mut self, target: &Target) -> Result<u64, String> {
        let command = format!("{}unread {}", target.prefix, target.name);
        Ok(self.stage.ask(target.end, &command)?.parse().unwrap_or(0))
    }

    /// Any open descriptor of one end, for looking.
    fn any(&self, conn: usize, end: End) -> Option<Target> {
        let (name, child) = self.sides[conn][index(end)].open.first()?.clone();
        Some(Target { conn, end, name, prefix: if child { "in P " } else { "" } })
    }

    /// Waits until both ends of a connection show what they will go on showing, and puts that
    /// into the plan.
    fn settle(&mut self, conn: usize, whole: bool) -> Result<(), String> {
        for end in [End::A, End::B] {
            let Some(target) = self.any(conn, end) else { continue };
            let [a, b] = &self.sides[conn];
            let (own, peer) = if end == End::A { (a, b) } else { (b, a) };
            let expected = peer.sent.checked_sub(own.received).filter(|_| !own.is_odd);
            let begun = Instant::now();
            let mut last = String::new();
            let mut same = 0;
            let enough = if expected.is_some() { 3 } else { 12 };
            while same < enough {
                let command = format!("{}look {}", target.prefix, target.name);
                let look = self.stage.ask(end, &command)?;
                let unread: Option<u64> =
                    look.split_whitespace().next().and_then(|word| word.parse().ok());
                // Bytes that are missing are on their way, unless the connection is over.
                let waits = unread.is_some()
                    && expected.is_some_and(|expected| Some(expected) != unread)
                    && !look.contains("err")
                    && !look.contains("hup")
                    && begun.elapsed() < Duration::from_millis(300);
                same = if look == last && !waits { same + 1 } else { 0 };
                last = look;
                std::thread::sleep(Duration::from_micros(200));
            }
            let kind = if whole { "await" } else { "awaitunread" };
            let expected =
                if whole { last } else { last.split_whitespace().next().unwrap_or("0").to_owned() };
            let command = format!("{}{kind} {} {expected}", target.prefix, target.name);
            self.lines.push(Line { end, command, result: Some("ok".to_owned()) });
        }
        Ok(())
    }

    fn look_at_all(&mut self) -> Result<(), String> {
        (0..self.sides.len()).try_for_each(|conn| self.settle(conn, true))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Connect { warm } => return self.connect(warm),
            Step::Look => return self.look_at_all(),
            Step::Wait { end, set, max } => {
                if let Some(count) = self.sets[index(end)][set] {
                    // Which of several fills a small buffer first nothing promises.
                    let max = if count > 1 { 64 } else { max };
                    self.look_at_all()?;
                    self.does(end, format!("epwait E{set} 0 {max}"))?;
                }
                return Ok(());
            }
            Step::Fork { end } => return self.fork(end),
            Step::Reap { end } => return self.reap(end),
            _ => {}
        }
        let Some(at) = place_of(step) else { return Ok(()) };
        let Some(target) = self.target(at) else { return Ok(()) };
        match *step {
            Step::Send { len, form, flags, .. } => self.send(&target, len, form, flags)?,
            Step::SendMore { len, corked, .. } => self.send_more(&target, len, corked)?,
            Step::Receive { len, form, flags, .. } => self.receive(&target, len, form, flags)?,
            Step::Bulk { len, .. } => self.bulk(&target, len)?,
            Step::Sleep { call, waker, .. } => self.sleep(&target, call, waker)?,
            Step::Poll { events, .. } => {
                self.on(&target, &format!("poll {events} 0"))?;
            }
            Step::Select { events, .. } => {
                self.on(&target, &format!("selectnow {events}"))?;
            }
            // What lies in a ring then is told of at once (docs/architecture.md).
            Step::Set { option: "lowat", .. } if self.unread(&target)? > 0 => {}
            Step::Set { option, value, .. } => {
                self.on(&target, &format!("set {option} {value}"))?;
                match option {
                    "rcvtimeo" => self.side(&target).receive_timeout = value != 0,
                    // Urgent bytes count otherwise, and events wait for more.
                    "oobinline" | "lowat" => self.side(&target).is_odd = true,
                    _ => {}
                }
            }
            Step::Get { option, .. } => {
                self.on(&target, &format!("get {option}"))?;
            }
            Step::Nonblock { on, .. } => {
                self.on(&target, &format!("nonblock {}", u8::from(on)))?;
                self.side(&target).nonblocking = on;
            }
            Step::Watch { set, events, .. } => self.watch(&target, set, "epadd", events)?,
            Step::Change { set, events, .. } => self.watch(&target, set, "epmod", events)?,
            Step::Unwatch { set, .. }
                if target.prefix.is_empty() && self.sets[index(target.end)][set].is_some() =>
            {
                self.does(target.end, format!("epdel E{set} {}", target.name))?;
            }
            Step::Shutdown { how, .. } => {
                self.on(&target, &format!("shutdown {how}"))?;
                let side = self.side(&target);
                side.has_ended_writing |= how != "rd";
                side.is_odd |= how != "wr";
            }
            Step::Close { .. } => self.close(&target)?,
            Step::Copy { .. } => {
                let copy = format!("D{}", target.conn);
                let child = !target.prefix.is_empty();
                let side = self.side(&target);
                if side.open.iter().any(|(name, _)| *name == copy) {
                    return Ok(());
                }
                side.open.push((copy.clone(), child));
                self.on(&target, &format!("dup {copy}"))?;
            }
            Step::Pass { .. } => self.pass(&target)?,
            Step::BadMemory { form, kind, len, .. } => {
                let receives = form.starts_with("re");
                if !receives || self.has_input(&target)? && !self.side(&target).is_odd {
                    let flags = if receives || form.contains('w') { "" } else { " nosignal" };
                    self.on(&target, &format!("vec {form} {kind}{len}{flags}"))?;
                }
            }
            Step::Urgent { .. } => {
                let side = self.side(&target);
                // Behind unread ring bytes the kernel drops the first of two (docs/architecture.md).
                let may = !side.has_ended_writing && !side.has_been_urgent;
                side.has_been_urgent = true;
                side.is_odd = true;
                let other = target.end.other();
                self.sides[target.conn][index(other)].is_odd = true;
                if may {
                    self.on(&target, "urgent")?;
                }
            }
            _ => {}
        }
        self.settle(target.conn, false)
    }

    fn connect(&mut self, warm: bool) -> Result<(), String> {
        if self.sides.len() == 3 {
            return Ok(());
        }
        let name = format!("C{}", self.sides.len());
        let mut lines = self.stage.connect(&name)?;
        self.lines.append(&mut lines);
        let side = Side { open: vec![(name.clone(), false)], ..Side::default() };
        self.sides.push([side.clone(), side]);
        // Otherwise TCP holds bytes back until others are acknowledged, up to 40 ms later.
        for end in [End::A, End::B] {
            self.does(end, format!("set {name} nodelay 1"))?;
        }
        if warm {
            for _ in 0..4 {
                for (end, verb) in [
                    (End::B, "sendall"),
                    (End::A, "recvall"),
                    (End::A, "sendall"),
                    (End::B, "recvall"),
                ] {
                    self.does(end, format!("{verb} {name} 100"))?;
                }
            }
        }
        Ok(())
    }

    fn moved(&mut self, target: &Target, result: &str, sends: bool) {
        if let Ok(len) = result.parse::<u64>() {
            let side = self.side(target);
            if sends {
                side.sent += len;
            } else {
                side.received += len;
            }
        }
    }

    /// Whether TCP's first window has room for so many more bytes: they arrive at once.
    fn has_room(&mut self, target: &Target, len: usize) -> bool {
        let other = &self.sides[target.conn][index(target.end.other())];
        let received = other.received;
        let side = self.side(target);
        side.sent + len as u64 - received.min(side.sent) < 60_000
    }

    fn send(&mut self, target: &Target, len: usize, form: &str, flags: &str) -> Result<(), String> {
        if !self.has_room(target, len) {
            return Ok(());
        }
        // Where a send that does not sleep is cut is the ring's or TCP's own affair.
        let may_be_cut = self.side(target).nonblocking || flags == "dontwait";
        let verb = if may_be_cut { "whole" } else { "send" };
        let result = self.on(target, &format!("{verb} {len} {flags} {form}"))?;
        self.moved(target, &result, true);
        Ok(())
    }

    /// A cork or MSG_MORE may hold bytes back, or not: looked at only when it is over.
    fn send_more(&mut self, target: &Target, len: usize, corked: bool) -> Result<(), String> {
        if !self.has_room(target, 2 * len + 2) {
            return Ok(());
        }
        if corked {
            self.on(target, "set cork 1")?;
        }
        let flags = if corked { "nosignal" } else { "nosignal+more" };
        let result = self.on(target, &format!("whole {} {flags} send", len + 1))?;
        self.moved(target, &result, true);
        let result = self.on(target, &format!("whole {} nosignal send", len + 1))?;
        self.moved(target, &result, true);
        if corked {
            self.on(target, "set cork 0")?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        target: &Target,
        len: usize,
        form: &str,
        flags: &str,
    ) -> Result<(), String> {
        let has_input = self.has_input(target)?;
        let unread = self.unread(target)?;
        let side = self.side(target).clone();
        let has_flags = !matches!(form, "read" | "readv");
        let mut flags = if has_flags { flags.to_owned() } else { "-".to_owned() };
        let waits_for_all = flags.contains("waitall") && unread < len as u64;
        let may_sleep = !side.nonblocking && !side.receive_timeout;
        if may_sleep && !flags.contains("dontwait") && (!has_input || waits_for_all) {
            if !has_flags {
                return Ok(());
            }
            flags = format!("{flags}+dontwait");
        }
        let peeks = flags.contains("peek");
        let result = self.on(target, &format!("recv {len} {flags} {form}"))?;
        if !peeks {
            self.moved(target, &result, false);
        }
        Ok(())
    }

    fn bulk(&mut self, target: &Target, len: usize) -> Result<(), String> {
        let Some(peer) = self.any(target.conn, target.end.other()) else { return Ok(()) };
        let (events, peer_events) = (self.events(target)?, self.events(&peer)?);
        let [a, b] = &self.sides[target.conn];
        let is_plain = |side: &Side| {
            !side.nonblocking && !side.receive_timeout && !side.is_odd && !side.has_ended_writing
        };
        let over = |events: &str| events.contains("hup") || events.contains("err");
        let child = !target.prefix.is_empty() || !peer.prefix.is_empty();
        if !is_plain(a) || !is_plain(b) || over(&events) || over(&peer_events) || child {
            return Ok(());
        }
        let unread = self.unread(&peer)?;
        self.does(target.end, format!("async T sendall {} {len}", target.name))?;
        self.does(peer.end, format!("recvall {} {}", peer.name, len as u64 + unread))?;
        self.does(target.end, "join T".to_owned())?;
        self.side(target).sent += len as u64;
        self.side(&peer).received += len as u64 + unread;
        Ok(())
    }

    fn sleep(&mut self, target: &Target, call: &str, waker: Waker) -> Result<(), String> {
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
        let command = match (call, waker) {
            ("recv", _) => format!("recv {name} 5000"),
            ("peek", _) => format!("recv {name} 5000 peek"),
            ("waitall", Waker::Send(len)) => format!("recv {name} {len} waitall"),
            ("waitall", _) => format!("recv {name} 100 waitall"),
            ("poll", _) => format!("poll {name} in -1"),
            ("pollhup", _) => format!("poll {name} rdhup -1"),
            _ => {
                self.does(target.end, "epoll S".to_owned())?;
                self.does(target.end, format!("epadd S {name} in+rdhup"))?;
                "epwait S -1".to_owned()
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
        if call == "epwait" {
            self.does(target.end, "close S".to_owned())?;
        }
        Ok(())
    }

    fn watch(
        &mut self,
        target: &Target,
        set: usize,
        how: &str,
        events: &str,
    ) -> Result<(), String> {
        if !target.prefix.is_empty() {
            return Ok(());
        }
        // Of two registrations only one hears of what lies unread in the ring when the socket
        // gets the second one (docs/architecture.md).
        if how == "epadd" && self.side(target).was_watched && self.unread(target)? > 0 {
            return Ok(());
        }
        self.side(target).was_watched = true;
        if self.sets[index(target.end)][set].is_none() {
            self.does(target.end, format!("epoll E{set}"))?;
        }
        *self.sets[index(target.end)][set].get_or_insert(0) += usize::from(how == "epadd");
        self.does(target.end, format!("{how} E{set} {} {events}", target.name)).map(drop)
    }

    fn close(&mut self, target: &Target) -> Result<(), String> {
        let child = !target.prefix.is_empty();
        let side = self.side(target);
        let is_left_to_child = !child
            && side.was_watched
            && side.open.iter().all(|(name, is_child)| *is_child || *name == target.name)
            && side.open.len() > 1;
        // A registration that outlives its descriptor does not hear of what lies in the ring
        // (docs/architecture.md).
        if is_left_to_child && self.unread(target)? > 0 {
            return Ok(());
        }
        self.on(target, "close")?;
        let side = self.side(target);
        side.open.retain(|(name, is_child)| *name != target.name || *is_child != child);
        if side.open.is_empty() {
            side.has_ended_writing = true;
            side.is_odd = true;
        }
        Ok(())
    }

    fn pass(&mut self, target: &Target) -> Result<(), String> {
        let copy = format!("G{}", target.conn);
        let side = self.side(target);
        let is_shared = side.open.iter().any(|(_, is_child)| *is_child);
        if !target.prefix.is_empty() || side.open.iter().any(|(name, _)| *name == copy) {
            return Ok(());
        }
        // What several hold stays with them (docs/architecture.md).
        if is_shared && self.unread(target)? > 0 {
            return Ok(());
        }
        let at = index(target.end);
        if !self.has_pair[at] {
            self.has_pair[at] = true;
            self.does(target.end, "pair U V".to_owned())?;
        }
        let to_child = self.has_child[at] && self.child_has_pair[at];
        self.does(target.end, format!("give U {}", target.name))?;
        let prefix = if to_child { "in P " } else { "" };
        self.does(target.end, format!("{prefix}take V {copy}"))?;
        self.side(target).open.push((copy, to_child));
        Ok(())
    }

    fn fork(&mut self, end: End) -> Result<(), String> {
        if self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, "fork P".to_owned())?;
        self.has_child[index(end)] = true;
        self.child_has_pair[index(end)] = self.has_pair[index(end)];
        for sides in &mut self.sides {
            let side = &mut sides[index(end)];
            let copies: Vec<_> = side.open.iter().map(|(name, _)| (name.clone(), true)).collect();
            side.open.extend(copies);
        }
        Ok(())
    }

    fn reap(&mut self, end: End) -> Result<(), String> {
        if !self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, "in P leave 0".to_owned())?;
        self.does(end, "reap P".to_owned())?;
        self.has_child[index(end)] = false;
        for conn in 0..self.sides.len() {
            let side = &mut self.sides[conn][index(end)];
            side.open.retain(|(_, child)| !child);
            if side.open.is_empty() {
                side.has_ended_writing = true;
                side.is_odd = true;
            }
            self.settle(conn, false)?;
        }
        Ok(())
    }
}

const fn place_of(step: &Step) -> Option<Place> {
    match step {
        Step::Send { at, .. }
        | Step::SendMore { at, .. }
        | Step::Receive { at, .. }
        | Step::Bulk { at, .. }
        | Step::Sleep { at, .. }
        | Step::Poll { at, .. }
        | Step::Pass { at }
        | Step::Select { at, .. }
        | Step::Set { at, .. }
        | Step::Get { at, .. }
        | Step::Nonblock { at, .. }
        | Step::Watch { at, .. }
        | Step::Change { at, .. }
        | Step::Unwatch { at, .. }
        | Step::Shutdown { at, .. }
        | Step::Close { at }
        | Step::Copy { at }
        | Step::BadMemory { at, .. }
        | Step::Urgent { at } => Some(*at),
        Step::Connect { .. }
        | Step::Wait { .. }
        | Step::Fork { .. }
        | Step::Reap { .. }
        | Step::Look => None,
    }
}
