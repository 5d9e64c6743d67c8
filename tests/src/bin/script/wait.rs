//! poll and epoll.

use std::io::Result;
use std::sync::mpsc;

use yasmin_tests::sys::{self, libc};

use crate::{Object, Script, number, ok, wrong};

const EVENTS: [(&str, u32); 9] = [
    ("in", libc::EPOLLIN as u32),
    ("pri", libc::EPOLLPRI as u32),
    ("out", libc::EPOLLOUT as u32),
    ("err", libc::EPOLLERR as u32),
    ("hup", libc::EPOLLHUP as u32),
    ("rdhup", libc::EPOLLRDHUP as u32),
    ("oneshot", libc::EPOLLONESHOT as u32),
    ("et", libc::EPOLLET as u32),
    ("exclusive", libc::EPOLLEXCLUSIVE as u32),
];

pub fn events_of(text: &str) -> Result<u32> {
    let mut events = 0;
    for word in text.split('+').filter(|word| *word != "-") {
        let known = EVENTS.iter().find(|(name, _)| *name == word);
        events |= known.ok_or_else(|| wrong(word))?.1;
    }
    Ok(events)
}

pub fn event_names(events: u32) -> String {
    let names: Vec<&str> =
        EVENTS.iter().filter(|(_, bit)| events & bit != 0).map(|(name, _)| *name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join("+") }
}

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["poll", name, events, timeout_ms] => {
            let fd = script.object(name)?.fd;
            let found = sys::poll_events(fd, events_of(events)? as i16, number(timeout_ms)?)?;
            Ok(event_names(u32::from(found.cast_unsigned())))
        }
        ["epoll", name] => {
            script.add(name, Object { fd: sys::epoll_create()?, streams: None });
            Ok("ok".to_owned())
        }
        ["epdel", set, name] => {
            let (set, fd) = (script.object(set)?.fd, script.object(name)?.fd);
            sys::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, 0, 0).map(ok)
        }
        [how @ ("epadd" | "epmod"), set, name, events] => {
            let (set, fd) = (script.object(set)?.fd, script.object(name)?.fd);
            let operation = if how == "epadd" { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
            sys::epoll_ctl(set, operation, fd, events_of(events)?, data_of(name)).map(ok)
        }
        ["tells", from, to, set, turns] => tells(script, from, to, set, number(turns)?),
        ["causes", way, one, other, one_to, other_to, set, turns] => {
            let order = if way == "forth" { [0, 1] } else { [1, 0] };
            causes(script, [one, other], [one_to, other_to], order, set, number(turns)?)
        }
        ["caused", way, one, other, one_to, other_to, set, turns] => {
            let (from, to) = if way == "forth" {
                ([one, other], [one_to, other_to])
            } else {
                ([other, one], [other_to, one_to])
            };
            caused(script, from, to, set, number(turns)?)
        }
        // In the order in which they are told.
        ["epinorder", set, timeout_ms] => {
            let found = sys::epoll_wait(script.object(set)?.fd, 64, number(timeout_ms)?)?;
            Ok(list(event_texts(found)))
        }
        ["epwait", set, timeout_ms] => epoll_wait(script, set, timeout_ms, 64),
        ["epwait", set, timeout_ms, max] => epoll_wait(script, set, timeout_ms, number(max)?),
        // So many in a row: all that they told of.
        ["epwait", set, timeout_ms, max, rounds] => {
            let (set, mut found) = (script.object(set)?.fd, Vec::new());
            for _ in 0..number(rounds)? {
                found.extend(sys::epoll_wait(set, number(max)?, number(timeout_ms)?)?);
            }
            found.sort_unstable();
            found.dedup();
            Ok(event_list(found))
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

/// Both ends of a connection are here: so many times bytes go over and a wait follows at once.
/// How many events all but some of these waits told of.
fn tells(script: &Script, from: &str, to: &str, set: &str, turns: usize) -> Result<String> {
    let (from, to) = (script.object(from)?.fd, script.object(to)?.fd);
    let set = script.object(set)?.fd;
    let mut byte = [0];
    let mut told = Vec::with_capacity(turns);
    for _ in 0..turns {
        sys::write(from, b"x")?;
        told.push(sys::epoll_wait(set, 64, 1000)?.len());
        sys::read(to, &mut byte)?;
    }
    // A byte on loopback may arrive a moment after the call that sent it.
    told.sort_unstable();
    Ok(told[turns / 10].to_string())
}

/// Both ends of two connections are here: so many times one thread asks on the second, is answered,
/// and sends on the one and then on the other. Whether this one's waits told of the second no earlier
/// than of the first. `order`: which of the two names is first.
fn causes(
    script: &Script,
    from: [&str; 2],
    to: [&str; 2],
    order: [usize; 2],
    set: &str,
    turns: usize,
) -> Result<String> {
    let fd = |name: &str| script.object(name).map(|object| object.fd);
    let (from, set) = ([fd(from[0])?, fd(from[1])?], fd(set)?);
    let to_fds = [fd(to[0])?, fd(to[1])?];
    let mut early = 0;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            for _ in 0..turns {
                sys::write(from[1], b"?")?;
                sys::read(from[1], &mut [0])?;
                for at in order {
                    sys::write(from[at], b"x")?;
                }
                sys::read(from[1], &mut [0])?;
            }
            Ok(())
        });
        let wait = || -> Result<[bool; 2]> {
            let mut told = [false; 2];
            for (_, data) in sys::epoll_wait(set, 64, 10_000)? {
                let at = to.iter().position(|name| data == data_of(name));
                let at = at.ok_or_else(|| wrong("an event of neither"))?;
                sys::read(to_fds[at], &mut [0])?;
                told[at] = true;
            }
            if told == [false; 2] { Err(wrong("nothing for 10 s")) } else { Ok(told) }
        };
        for _ in 0..turns {
            wait()?;
            sys::write(to_fds[1], b"!")?;
            let first = wait()?;
            if !first[order[0]] {
                early += 1;
            }
            if first != [true; 2] {
                wait()?;
            }
            sys::write(to_fds[1], b"!")?;
        }
        sender.join().expect("a thread of ours")?;
        // A packet on loopback may arrive a moment after the call that sent it.
        Ok(if early <= turns / 20 { "in order".to_owned() } else { format!("{early} early") })
    })
}

/// Both ends of two connections are here: so many times one thread sends on the first and on the
/// second, and then this one waits. Whether its waits tell of both, in the order of sending.
fn caused(
    script: &Script,
    from: [&str; 2],
    to: [&str; 2],
    set: &str,
    turns: usize,
) -> Result<String> {
    let fd = |name: &str| script.object(name).map(|object| object.fd);
    let (from, to_fds, set) = ([fd(from[0])?, fd(from[1])?], [fd(to[0])?, fd(to[1])?], fd(set)?);
    let wait = |timeout_ms| -> Result<Vec<usize>> {
        let place = |data| to.iter().position(|name| data == data_of(name)).unwrap_or(to.len());
        let told: Vec<_> = sys::epoll_wait(set, 64, timeout_ms)?
            .into_iter()
            .map(|(_, data)| place(data))
            .collect();
        for at in &told {
            sys::read(*to_fds.get(*at).ok_or_else(|| wrong("an event of neither"))?, &mut [0])?;
        }
        Ok(told)
    };
    let (go, goes) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let mut wrong_turns = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            goes.iter().try_for_each(|at: usize| {
                done.send(sys::write(from[at], b"x").map(drop)).map_err(drop)
            })
        });
        let sends = |at: usize| {
            go.send(at).expect("the sender waits");
            is_done.recv().expect("it answers")
        };
        for _ in 0..turns {
            // What was told of in the last answer keeps its place in the kernel's list until the next.
            wait(0)?;
            sends(0)?;
            sends(1)?;
            let mut told = wait(1000)?;
            if told.len() < 2 {
                told.extend(wait(1000)?);
            }
            wrong_turns += usize::from(told != [0, 1]);
        }
        drop(go);
        // A packet on loopback may arrive a moment after the call that sent it.
        let is_fine = wrong_turns <= turns / 20;
        Ok(if is_fine { "in order".to_owned() } else { format!("{wrong_turns} turned") })
    })
}

/// What a registration of that name has for data.
fn data_of(name: &str) -> u64 {
    let mut data = [0; 8];
    let len = name.len().min(8);
    data[..len].copy_from_slice(&name.as_bytes()[..len]);
    u64::from_le_bytes(data)
}

fn epoll_wait(script: &Script, set: &str, timeout_ms: &str, max: usize) -> Result<String> {
    let found = sys::epoll_wait(script.object(set)?.fd, max, number(timeout_ms)?)?;
    Ok(event_list(found))
}

pub fn event_list(found: Vec<(u32, u64)>) -> String {
    let mut texts = event_texts(found);
    texts.sort();
    list(texts)
}

fn event_texts(found: Vec<(u32, u64)>) -> Vec<String> {
    let text = |(events, data): (u32, u64)| {
        let bytes = data.to_le_bytes();
        let name = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
        format!("{name}:{}", event_names(events))
    };
    found.into_iter().map(text).collect()
}

fn list(texts: Vec<String>) -> String {
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(" ") }
}
