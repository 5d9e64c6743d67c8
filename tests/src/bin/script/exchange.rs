//! Both ends of a conversation as event loops hold it: bytes are asked for without sleeping,
//! and when there are none, one of many ways to wait comes before the next try.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use yasmin_tests::sys::interrupts::{self, Mask};
use yasmin_tests::sys::{self, Fd, Ready, borrowed, libc, sigio};

use crate::{BARE, Script, number, wrong};

/// Nobody announces later that something came; the other end is done long before.
const PATIENCE_MS: i32 = 3000;

const IN: i16 = libc::POLLIN;
const SET_IN: u32 = libc::EPOLLIN as u32;
const SET_OUT: u32 = libc::EPOLLOUT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        // Requests of `len` bytes and answers; who goes first, and who is asked.
        ["pingpong", name, role, len, rounds, waits] => {
            let (len, rounds): (usize, usize) = (number(len)?, number(rounds)?);
            let seed = (len * rounds) as u64 + u64::from(role == "first");
            let mut end = Gatherer::new(script, name, waits, seed)?;
            let mut told = end.talk(role == "first", len, rounds)?;
            if told.is_empty() {
                "ok".clone_into(&mut told);
            }
            Ok(told)
        }
        ["gather", name, len, waits] => {
            let len = number(len)?;
            let mut end = Gatherer::new(script, name, waits, len as u64)?;
            Ok(end.gather(len)?.unwrap_or_else(|| "ok".to_owned()))
        }
        // Who takes what there is, and has other things to do before each wait, for so long at
        // most.
        ["gather", name, len, waits, busy_us] => {
            let len = number(len)?;
            let mut end = Gatherer::new(script, name, waits, len as u64)?;
            end.busy_us = number(busy_us)?;
            if waits.starts_with("set") {
                end.kept(waits)?;
            }
            Ok(end.gather(len)?.unwrap_or_else(|| "ok".to_owned()))
        }
        // In pieces and with pauses that the seed decides.
        ["trickle", name, len, seed] => trickle(script, name, number(len)?, number(seed)?),
        _ => Err(wrong(&words.join(" "))),
    }
}

/// Pauses and choices that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// Long enough, mostly, for the other end to have gone to sleep.
    fn pause(&mut self) {
        let us = [0, 0, 20, 100, 300, 600][self.below(6) as usize];
        if us > 0 {
            std::thread::sleep(Duration::from_micros(us));
        }
    }

    /// Up to so long.
    fn pause_within(&mut self, most_us: u64) {
        if most_us > 0 {
            std::thread::sleep(Duration::from_micros(self.below(most_us)));
        }
    }
}

struct Gatherer<'a> {
    script: &'a Script,
    name: &'a str,
    fd: Fd,
    waits: Vec<&'a str>,
    dice: Dice,
    busy_us: u64,
    /// Sets that live as long as the conversation, by the wait that uses them.
    sets: Vec<(&'a str, Kept)>,
}

/// Where to wait, and what to close in the end.
struct Kept {
    set: Fd,
    /// The one with the socket in it, if it is another one.
    inner: Fd,
    closes: Vec<Fd>,
}

impl Drop for Gatherer<'_> {
    fn drop(&mut self) {
        for fd in self.sets.iter().flat_map(|(_, kept)| &kept.closes) {
            let _ = sys::close(*fd);
        }
        if self.waits.iter().any(|wait| announces(wait)) {
            let _ = sigio::announce(self.fd, false, false);
            while sigio::take(0).unwrap_or(false) {}
        }
    }
}

fn announces(wait: &str) -> bool {
    matches!(wait, "sigio" | "fioasync" | "sigqueue")
}

impl<'a> Gatherer<'a> {
    fn new(script: &'a Script, name: &'a str, waits: &'a str, seed: u64) -> Result<Self> {
        let fd = script.object(name)?.fd;
        let waits: Vec<&str> = waits.split(',').collect();
        for wait in waits.iter().filter(|wait| announces(wait)) {
            sigio::hold();
            sigio::own(fd)?;
            sigio::queue(fd, *wait == "sigqueue")?;
            sigio::announce(fd, true, *wait == "fioasync")?;
        }
        let dice = Dice(seed);
        Ok(Self { script, name, fd, waits, dice, busy_us: 0, sets: Vec::new() })
    }

    fn talk(&mut self, is_first: bool, len: usize, rounds: usize) -> Result<String> {
        for round in 0..rounds {
            for sends in [is_first, !is_first] {
                if sends {
                    self.dice.pause();
                    let sent = crate::bytes::send_all(self.script, self.name, len)?;
                    if sent != len.to_string() {
                        return Ok(format!("round {round}: sent {sent}"));
                    }
                } else if let Some(why) = self.gather(len)? {
                    return Ok(format!("round {round}: {why}"));
                }
            }
        }
        Ok(String::new())
    }

    /// `None` when all came.
    fn gather(&mut self, len: usize) -> Result<Option<String>> {
        let (_, _, stream) = self.script.streams(self.name)?;
        let mut buffer = vec![0; 16 << 10];
        let mut done = 0;
        let is_level = !self.waits.iter().any(|wait| announces(wait) || wait.ends_with("edge"));
        // Programs that wait before they try register what is unread already. A signal would
        // have come before it was asked for.
        let tries_first = self.busy_us > 0
            || self.waits.iter().any(|wait| announces(wait))
            || self.dice.below(2) == 0;
        if !tries_first {
            self.dice.pause();
            if let Some(why) = self.wait_once(done, len)? {
                return Ok(Some(why));
            }
        }
        while done < len {
            let room = match self.busy_us {
                0 => [64, 1000, buffer.len()][self.dice.below(3) as usize],
                _ if done == 0 => buffer.len(),
                _ => [64, 64, 1000][self.dice.below(3) as usize],
            };
            let room = room.min(len - done);
            match sys::recv(self.fd, &mut buffer[..room], libc::MSG_DONTWAIT) {
                Ok(0) => return Ok(Some(format!("the end after {done}"))),
                Ok(got) => {
                    if let Err(mismatch) = stream.pattern.check(stream.at(), &buffer[..got]) {
                        return Ok(Some(format!("WRONG after {done}: {mismatch}")));
                    }
                    stream.advance(got);
                    done += got;
                    // Level-triggered programs wait after each read.
                    if done < len
                        && is_level
                        && self.dice.below(2) == 0
                        && let Some(why) = self.wait_once(done, len)?
                    {
                        return Ok(Some(why));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(why) = self.wait_once(done, len)? {
                        return Ok(Some(why));
                    }
                }
                Err(error) => return Ok(Some(format!("{} after {done}", sys::errno_name(&error)))),
            }
        }
        Ok(None)
    }

    /// In one of the ways; `None` if it told of something.
    fn wait_once(&mut self, done: usize, len: usize) -> Result<Option<String>> {
        self.dice.pause_within(self.busy_us);
        let wait = self.waits[self.dice.below(self.waits.len() as u64) as usize];
        let told = self.wait(wait)?;
        Ok((!told).then(|| format!("{wait} told nothing after {done} of {len}")))
    }

    /// Whether the wait ended in time: whatever it told, the next try shows what is there.
    fn wait(&mut self, wait: &'a str) -> Result<bool> {
        let (fd, want) = (self.fd, Ready { readable: true, writable: false });
        // A child in borrowed memory does something with the number now and then.
        if let Some(base) = wait.strip_prefix("borrow") {
            let all = ["dup2", "close", "closesocket", "closeaccept", "closeset", "closerange"];
            if self.dice.below(3) == 0 {
                let how = all[self.dice.below(all.len() as u64) as usize];
                borrowed::child_uses(fd, how)?;
            }
            return self.wait(base);
        }
        if BARE && let Some(told) = crate::unseen::wait(fd, wait, PATIENCE_MS)? {
            return Ok(told);
        }
        Ok(match wait {
            "poll" => sys::poll_events(fd, IN, PATIENCE_MS)? != 0,
            "ppoll" => interrupts::ppoll(fd, IN, PATIENCE_MS, Mask::blocking(&sigio::held()))? != 0,
            "select" => sys::select(fd, want, PATIENCE_MS)?.readable,
            "pselect" => sys::pselect(fd, want, PATIENCE_MS)?.readable,
            "sigio" | "fioasync" | "sigqueue" => sigio::take(PATIENCE_MS)?,
            "pollset" => sys::poll_events(self.kept("set")?, IN, PATIENCE_MS)? != 0,
            "selectset" => sys::select(self.kept("set")?, want, PATIENCE_MS)?.readable,
            "nested" | "nestededge" | "nestedonce" | "nestedtwice" | "nestednew" => {
                self.wait_nested(wait)?
            }
            "fresh" | "freshdup" | "barefresh" => {
                let kept = make_set(fd, wait)?;
                let told = wait_in(kept.set, wait)?;
                kept.closes.into_iter().try_for_each(sys::close)?;
                told
            }
            _ => wait_in(self.kept(wait)?, wait)?,
        })
    }

    /// In a set that holds the one with the socket. What that one tells of is taken out of it.
    fn wait_nested(&mut self, wait: &'a str) -> Result<bool> {
        let outer = self.kept(wait)?;
        let inner = match wait {
            "nestednew" => {
                let inner = sys::epoll_create()?;
                sys::epoll_ctl(outer, libc::EPOLL_CTL_ADD, inner, SET_IN, 0)?;
                sys::epoll_ctl(inner, libc::EPOLL_CTL_ADD, self.fd, SET_IN, 0)?;
                inner
            }
            _ => self.sets.iter().find(|(name, _)| *name == wait).map_or(-1, |(_, one)| one.inner),
        };
        if wait == "nestedonce" {
            sys::epoll_ctl(inner, libc::EPOLL_CTL_MOD, self.fd, SET_IN | ONESHOT, 0)?;
        }
        let told = wait_in(outer, wait)?;
        if told {
            sys::epoll_wait(inner, 8, 0)?;
        }
        if wait == "nestednew" {
            sys::close(inner)?;
        }
        Ok(told)
    }

    /// The set that such waits use.
    fn kept(&mut self, wait: &'a str) -> Result<Fd> {
        if let Some((_, kept)) = self.sets.iter().find(|(name, _)| *name == wait) {
            return Ok(kept.set);
        }
        let kept = make_set(self.fd, wait)?;
        let set = kept.set;
        self.sets.push((wait, kept));
        Ok(set)
    }
}

fn wait_in(set: Fd, wait: &str) -> Result<bool> {
    if BARE && wait.starts_with("bare") {
        return crate::unseen::set_tells(set, PATIENCE_MS);
    }
    Ok(!sys::epoll_wait(set, 8, PATIENCE_MS)?.is_empty())
}

fn make_set(fd: Fd, wait: &str) -> Result<Kept> {
    let set = sys::epoll_create()?;
    let add = |set, fd, events| sys::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, events, 0);
    match wait {
        "set" | "fresh" | "bareset" | "barefresh" => add(set, fd, SET_IN)?,
        "setedge" | "baresetedge" => add(set, fd, SET_IN | EDGE)?,
        "nested" | "nestedonce" | "nestededge" | "nestedtwice" => {
            let events = match wait {
                "nestededge" => SET_IN | EDGE,
                "nestedonce" => SET_IN | ONESHOT,
                _ => SET_IN,
            };
            let inner = sys::epoll_create()?;
            add(inner, fd, events)?;
            let mut closes = vec![set, inner];
            let mut inside = inner;
            if wait == "nestedtwice" {
                inside = sys::epoll_create()?;
                add(inside, inner, SET_IN)?;
                closes.push(inside);
            }
            add(set, inside, SET_IN)?;
            return Ok(Kept { set, inner, closes });
        }
        "nestednew" => {}
        // What was registered by one number is waited for by another.
        "dupset" | "freshdup" => {
            let other = sys::dup(set)?;
            add(set, fd, SET_IN)?;
            return Ok(Kept { set: other, inner: other, closes: vec![set, other] });
        }
        "dupsetedge" => {
            let other = sys::dup(set)?;
            add(other, fd, SET_IN | SET_OUT | EDGE)?;
            sys::close(other)?;
        }
        // The socket's second number is the one that is told of.
        "dupsocket" => {
            let other = sys::dup(fd)?;
            add(set, fd, SET_OUT | EDGE)?;
            add(set, other, SET_IN)?;
            return Ok(Kept { set, inner: set, closes: vec![set, other] });
        }
        "dupchange" => {
            let other = sys::dup(fd)?;
            add(set, fd, SET_IN)?;
            sys::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, SET_OUT | EDGE, 0)?;
            add(set, other, SET_IN)?;
            return Ok(Kept { set, inner: set, closes: vec![set, other] });
        }
        "dupdelete" => {
            let other = sys::dup(fd)?;
            add(set, fd, SET_IN)?;
            add(set, other, SET_IN)?;
            sys::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, 0, 0)?;
            return Ok(Kept { set, inner: set, closes: vec![set, other] });
        }
        _ => return Err(Error::other(format!("script error: no wait {wait}"))),
    }
    Ok(Kept { set, inner: set, closes: vec![set] })
}

fn trickle(script: &Script, name: &str, len: usize, seed: u64) -> Result<String> {
    let mut dice = Dice(seed);
    let mut left = len;
    while left > 0 {
        let most = [1, 50, 1000, 8000][dice.below(4) as usize];
        let now = (1 + dice.below(most) as usize).min(left);
        let sent = crate::bytes::send_all(script, name, now)?;
        if sent != now.to_string() {
            return Ok(format!("{} then {sent}", len - left));
        }
        left -= now;
        dice.pause();
    }
    Ok("ok".to_owned())
}
