//! The order in which a wait tells of several connections.
//!
//! Between two waits no more than one connection becomes ready that the kernel's list does not hold:
//! the order of all that is told is certain then, whichever way the bytes came.

use super::{Plan, Target, index};
use crate::program::{End, Turn};

const SET: &str = "O";

/// What a set tells of, and how the plan knows its places.
struct Places {
    end: End,
    targets: Vec<Target>,
    tells_once: bool,
    /// By connection: it is in the kernel's list.
    listed: Vec<bool>,
    /// By connection: what it asks for.
    events: Vec<&'static str>,
}

impl Plan<'_> {
    pub(super) fn order(
        &mut self,
        end: End,
        tells_once: bool,
        turns: &[(usize, Turn)],
    ) -> Result<(), String> {
        let whole = |at: &usize| {
            let sides = &self.sides[*at];
            !sides.iter().any(|side| side.has_ended_writing || side.is_odd)
        };
        let conns: Vec<_> = (0..self.sides.len()).filter(whole).collect();
        let targets: Vec<_> =
            conns.into_iter().filter_map(|conn| self.parents(conn, end)).collect();
        if targets.is_empty() {
            return Ok(());
        }
        let count = targets.len();
        let mut places = Places {
            end,
            targets,
            tells_once,
            listed: vec![false; count],
            events: vec!["in"; count],
        };
        self.does(end, format!("epoll {SET}"))?;
        for at in 0..count {
            self.register(&places, "epadd", at)?;
            self.tell(&mut places)?;
        }
        for &(at, turn) in turns {
            self.turn(&mut places, at % count, turn)?;
        }
        self.tell(&mut places)?;
        self.does(end, format!("close {SET}")).map(drop)
    }

    fn parents(&self, conn: usize, end: End) -> Option<Target> {
        let open = &self.sides[conn][index(end)].open;
        let (name, _) = open.iter().find(|(_, is_child)| !is_child)?;
        Some(Target { conn, end, name: name.clone(), prefix: "" })
    }

    fn register(&mut self, places: &Places, how: &str, at: usize) -> Result<(), String> {
        let (name, events) = (&places.targets[at].name, places.events[at]);
        let edge = if places.tells_once { "+et" } else { "" };
        self.does(places.end, format!("{how} {SET} {name} {events}{edge}")).map(drop)
    }

    fn turn(&mut self, places: &mut Places, at: usize, turn: Turn) -> Result<(), String> {
        let target = places.targets[at].clone();
        match turn {
            Turn::Wait => return self.tell(places),
            Turn::Receive(len) => return self.receive(&target, len, "recv", "dontwait"),
            Turn::Send(len) => return self.send(&target, len, "send", "nosignal"),
            Turn::Sent(len) => self.peer_sends(&target, len)?,
            Turn::Ask(events) => {
                places.events[at] = events;
                self.register(places, "epmod", at)?;
            }
        }
        // What is in the list keeps its place.
        if places.listed[at] { Ok(()) } else { self.tell(places) }
    }

    fn tell(&mut self, places: &mut Places) -> Result<(), String> {
        for target in &places.targets {
            self.settle(target.conn, false)?;
        }
        let told = self.does(places.end, format!("epinorder {SET} 0"))?;
        for (listed, target) in places.listed.iter_mut().zip(&places.targets) {
            let is_it = |event: &str| event.split(':').next() == Some(target.name.as_str());
            *listed = !places.tells_once && told.split_whitespace().any(is_it);
        }
        Ok(())
    }
}
