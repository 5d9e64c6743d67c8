//! A program's steps as commands to the two peers, decided while they run on plain TCP: what
//! would sleep for ever is left out, and after each step the kernel is given the time to
//! settle. What plain TCP then showed is what rings must show.

use std::time::{Duration, Instant};

use crate::program::{Act, End, Place, SetPlace, Step};
use crate::stage::Stage;

mod bytes;
mod holders;
mod places;
mod sets;
mod waits;

use sets::{SETS, Set};

/// So many connections a program has at most.
const MOST: usize = 3;

/// A command and what became of it. `None`: it need not be the same.
#[derive(Clone, Debug)]
pub struct Line {
    pub end: End,
    pub command: String,
    pub result: Option<String>,
    /// The step that it belongs to.
    pub step: usize,
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
    peeks_on: bool,
    announces: bool,
    /// Ordinary bytes are unread that were sent before an urgent one.
    is_before_mark: bool,
}

impl Side {
    fn is_set(&mut self, option: &str, value: i32) {
        match option {
            "rcvtimeo" => self.receive_timeout = value != 0,
            // Urgent bytes count otherwise, and events wait for more.
            "oobinline" | "lowat" => self.is_odd = true,
            "peekoff" => self.peeks_on = value >= 0,
            "announce" => self.announces = true,
            _ => {}
        }
    }
}

/// glibc's threads for asynchronous input and output stay with the parent, and a child of one that
/// had some waits for them for ever, on plain TCP too.
fn has_no_threads(target: &Target, form: &str) -> bool {
    target.prefix.starts_with("in ") && form.starts_with("aio")
}

fn option_command(name: &str, option: &str, value: i32) -> String {
    match option {
        "announce" => format!("announce {name} fcntl 1"),
        "ulp" => format!("ulp {name}"),
        _ => format!("set {name} {option} {value}"),
    }
}

pub struct Plan<'a> {
    stage: &'a mut Stage,
    pub lines: Vec<Line>,
    /// Which step is at it.
    nth: usize,
    sides: Vec<[Side; 2]>,
    /// What accepted sockets are set to.
    inherited: Side,
    /// The sets of each end that exist.
    sets: [[Option<Set>; SETS]; 2],
    has_child: [bool; 2],
    /// Unix sockets to pass descriptors over, by how they were made, and whether the child has
    /// them.
    links: [Vec<(&'static str, bool)>; 2],
}

const fn index(end: End) -> usize {
    match end {
        End::A => 0,
        End::B => 1,
    }
}

/// A descriptor to use: which connection, its name, and how the command begins.
#[derive(Clone)]
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
            nth: 0,
            sides: Vec::new(),
            inherited: Side::default(),
            sets: Default::default(),
            has_child: [false; 2],
            links: Default::default(),
        }
    }

    /// Runs the steps on plain TCP; afterwards `lines` is what rings must do too.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            if let Step::At(at, Act::Pass { link, to_child: true, is_early, .. }) = step {
                self.make_link(at.end, link)?;
                if *is_early {
                    self.fork(at.end)?;
                }
            }
        }
        for (nth, step) in steps.iter().enumerate() {
            self.nth = nth;
            if self.sides.is_empty() && !step.is_before() {
                self.connect(true, None)?;
            }
            self.step(step)?;
        }
        self.look_at_all()?;
        for conn in 0..self.sides.len() {
            for end in [End::A, End::B] {
                let side = &self.sides[conn][index(end)];
                // Whoever holds it: the parent, or else the child.
                let mut names = side.open.iter();
                let name = names.find(|(_, child)| !child).or_else(|| side.open.first()).cloned();
                if let Some((name, child)) = name {
                    let prefix = if child { "in P " } else { "" };
                    self.does(end, format!("{prefix}drainnow {name}"))?;
                }
            }
        }
        Ok(())
    }

    fn does(&mut self, end: End, command: String) -> Result<String, String> {
        let result = self.stage.ask(end, &command)?;
        self.note(end, command, Some(result.clone()));
        Ok(result)
    }

    fn note(&mut self, end: End, command: String, result: Option<String>) {
        self.lines.push(Line { end, command, result, step: self.nth });
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
            // Up to the mark, if there is one ahead.
            if last.split_whitespace().next() == Some("0") {
                self.sides[conn][index(end)].is_before_mark = false;
            }
            let kind = if whole { "await" } else { "awaitunread" };
            let expected =
                if whole { last } else { last.split_whitespace().next().unwrap_or("0").to_owned() };
            let command = format!("{}{kind} {} {expected}", target.prefix, target.name);
            self.note(end, command, Some("ok".to_owned()));
        }
        Ok(())
    }

    /// As `look_at_all`, but where nothing has ended, no poll tells the library what to look at.
    fn settle_all(&mut self) -> Result<(), String> {
        for conn in 0..self.sides.len() {
            let has_ended = self.sides[conn].iter().any(|side| side.has_ended_writing);
            self.settle(conn, has_ended)?;
        }
        Ok(())
    }

    fn look_at_all(&mut self) -> Result<(), String> {
        (0..self.sides.len()).try_for_each(|conn| self.settle(conn, true))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Connect { warm, early } => self.connect(warm, early),
            Step::Dial { set, events, is_early } => self.dial(set, events, is_early),
            Step::Listener { option, value } => self.set_listener(option, value),
            Step::Arguments { end, form } => self.does(end, format!("badcall - {form}")).map(drop),
            Step::Alone { end, what, seed, rounds } => {
                self.does(end, format!("{what} {seed} {rounds}")).map(drop)
            }
            Step::Look => self.look_at_all(),
            Step::Wait { end, from, in_child, max } => self.wait(end, from, in_child, max),
            Step::Nest { end, inner, outer, how, events, in_child } => {
                self.nest(end, [inner, outer], how, events, in_child)
            }
            Step::Order { end, tells_once, ref turns } => self.order(end, tells_once, turns),
            Step::PollSet { end, from, how, in_child } => self.poll_set(end, from, how, in_child),
            Step::CopySet { end, set, how } => self.copy_set(end, set, how),
            Step::PassSet { end, set, link } => self.pass_set(end, set, link),
            Step::CloseSet { end, from, in_child } => self.close_set(end, from, in_child),
            Step::Fork { end } => self.fork(end),
            Step::Become { end, in_child, keeps } => self.becomes(end, in_child, keeps),
            Step::Broker { how } => {
                self.note(End::A, format!("broker {how}"), Some("ok".to_owned()));
                Ok(())
            }
            Step::Demote { end, in_child } => {
                let prefix = if in_child && self.has_child[index(end)] { "in P " } else { "" };
                self.does(end, format!("{prefix}user 65534")).map(drop)
            }
            Step::Start { end, how } => self.start(end, how),
            Step::Reap { end, exits } => self.reap(end, exits),
            Step::At(at, ref act) => {
                let Some(target) = self.target(at) else { return Ok(()) };
                self.act(&target, act)?;
                self.settle(target.conn, false)
            }
        }
    }

    fn act(&mut self, target: &Target, act: &Act) -> Result<(), String> {
        match *act {
            Act::Send { form, .. } | Act::Fetch { form, .. } if has_no_threads(target, form) => {
                Ok(())
            }
            Act::Send { len, form, flags } => self.send(target, len, form, flags),
            Act::SendMore { len, corked } => self.send_more(target, len, corked),
            Act::Receive { len, form, flags } => self.receive(target, len, form, flags),
            Act::Fetch { sent, len, form } => {
                if let Some(sent) = sent {
                    self.peer_sends(target, sent)?;
                }
                self.receive(target, len, form, "-")
            }
            Act::Bulk { len } => self.bulk(target, len),
            Act::Sleep { call, waker } => self.sleep(target, call, waker),
            Act::Talk { len, rounds, waits } => self.talk(target, len, rounds, waits),
            Act::Stream { len, wait, pace, seed } => self.stream(target, len, wait, pace, seed),
            Act::Overtake { first, then, wait, bytes_per_s } => {
                self.overtake(target, first, then, wait, bytes_per_s)
            }
            Act::Storeys { depth, events, ref looks } => {
                self.storeys(target, &events[..depth], looks)
            }
            Act::Across { events, fork_at, ref looks, exits } => {
                self.across(target, events, fork_at, looks, exits)
            }
            Act::Poll { events } => self.on(target, &format!("poll {events} 0")).map(drop),
            Act::Select { events } => self.on(target, &format!("selectnow {events}")).map(drop),
            Act::Set { option, value } => self.set(target, option, value),
            Act::Get { option } => self.on(target, &format!("get {option}")).map(drop),
            Act::Nonblock { on } => {
                self.side(target).nonblocking = on;
                self.on(target, &format!("nonblock {}", u8::from(on))).map(drop)
            }
            Act::Watch { set, events } => self.watch(target, set, "epadd", events),
            Act::Change { set, events } => self.watch(target, set, "epmod", events),
            Act::Unwatch { set } => self.unwatch(target, set),
            Act::Shutdown { how } => {
                let side = self.side(target);
                side.has_ended_writing |= how != "rd";
                side.is_odd |= how != "wr";
                self.on(target, &format!("shutdown {how}")).map(drop)
            }
            Act::Close => self.close(target),
            Act::Copy => self.copy(target),
            Act::Over { onto } => self.over(target, onto),
            Act::Inherit { on } => self.on(target, &format!("cloexec {}", u8::from(!on))).map(drop),
            Act::Pass { link, to_child, beside, closes, unread, .. } => {
                if to_child {
                    self.fork(target.end)?;
                }
                if unread {
                    self.peer_sends(target, 100)?;
                }
                if beside && target.prefix.is_empty() {
                    self.does(target.end, "fork Q".to_owned())?;
                }
                self.pass(target, link, to_child, closes)?;
                if beside && target.prefix.is_empty() {
                    self.does(target.end, "in Q leave 0".to_owned())?;
                    self.does(target.end, "reap Q".to_owned())?;
                }
                Ok(())
            }
            Act::Announce { how, on } => {
                self.side(target).announces = on;
                self.on(target, &format!("announce {how} {}", u8::from(on))).map(drop)
            }
            Act::Borrow { how } => self.on(target, &format!("vforked {how}")).map(drop),
            Act::Arguments { form } => self.on(target, &format!("badcall {form}")).map(drop),
            Act::BadMemory { form, kind, len } => self.bad_memory(target, form, kind, len),
            Act::Urgent { before, after } => self.urgent(target, before, after),
            Act::ReceiveUrgent { peeks } => {
                let flags = if peeks { "oob+dontwait+peek" } else { "oob+dontwait" };
                self.on(target, &format!("recv 1 {flags}")).map(drop)
            }
            Act::Mark => {
                self.on(target, "atmark")?;
                self.on(target, "unread").map(drop)
            }
        }
    }

    /// Not the times of bytes that came before anybody asked for them: the kernel has these only
    /// while another socket asks, and a ring has none.
    fn set(&mut self, target: &Target, option: &str, value: i32) -> Result<(), String> {
        if option.starts_with("timestamp") && self.unread(target)? > 0 {
            return Ok(());
        }
        let command = option_command(&target.name, option, value);
        self.does(target.end, format!("{}{command}", target.prefix))?;
        self.side(target).is_set(option, value);
        Ok(())
    }

    fn set_listener(&mut self, option: &str, value: i32) -> Result<(), String> {
        self.does(End::A, option_command("L", option, value))?;
        self.inherited.is_set(option, value);
        Ok(())
    }

    fn connect(&mut self, warm: bool, early: Option<(&str, i32)>) -> Result<(), String> {
        if self.sides.len() == MOST {
            return Ok(());
        }
        let name = format!("C{}", self.sides.len());
        let open = vec![(name.clone(), false)];
        let accepts = Side { open: open.clone(), ..self.inherited.clone() };
        let mut connects = Side { open, ..Side::default() };
        if let Some((option, value)) = early {
            self.does(End::B, format!("socket {name} v4"))?;
            self.does(End::B, option_command(&name, option, value))?;
            connects.is_set(option, value);
        }
        self.stage.connect(&name)?;
        self.note(End::B, format!("connect {name}"), None);
        self.sides.push([accepts, connects]);
        self.has_no_delay(&name)?;
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

    /// Otherwise TCP holds bytes back until others are acknowledged, up to 40 ms later.
    fn has_no_delay(&mut self, name: &str) -> Result<(), String> {
        for end in [End::A, End::B] {
            self.does(end, format!("set {name} nodelay 1"))?;
        }
        Ok(())
    }

    fn dial(&mut self, set: SetPlace, events: &str, is_early: bool) -> Result<(), String> {
        if self.sides.len() == MOST {
            return Ok(());
        }
        let conn = self.sides.len();
        let name = format!("C{conn}");
        let at = |end| Target { conn, end, name: name.clone(), prefix: "" };
        let open = vec![(name.clone(), false)];
        let accepts = Side { open: open.clone(), nonblocking: true, ..self.inherited.clone() };
        let connects = Side { open, nonblocking: true, ..Side::default() };
        self.does(End::B, format!("socket {name} v4"))?;
        self.does(End::B, format!("nonblock {name} 1"))?;
        if is_early {
            self.watch(&at(End::B), set, "epadd", events)?;
            self.wait(End::B, set, false, 64)?;
        }
        let result = self.stage.dial(&name)?;
        self.note(End::B, format!("dial {name}"), Some(result));
        self.sides.push([accepts, connects]);
        self.settle(conn, false)?;
        for end in [End::A, End::B] {
            if end == End::A || !is_early {
                self.watch(&at(end), set, "epadd", events)?;
            }
            self.wait(end, set, false, 64)?;
        }
        self.has_no_delay(&name)
    }
}
