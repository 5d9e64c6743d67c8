//! Who holds a socket: copies, children, other processes.

use super::{Plan, Target, index};
use crate::program::End;

impl Plan<'_> {
    pub(super) fn close(&mut self, target: &Target) -> Result<(), String> {
        let child = !target.prefix.is_empty();
        self.on(target, "close")?;
        let side = self.side(target);
        side.open.retain(|(name, is_child)| *name != target.name || *is_child != child);
        if side.open.is_empty() {
            side.has_ended_writing = true;
            side.is_odd = true;
        }
        Ok(())
    }

    pub(super) fn pass(
        &mut self,
        target: &Target,
        link: &'static str,
        to_child: bool,
        closes: bool,
    ) -> Result<(), String> {
        let copy = format!("G{}", target.conn);
        let side = self.side(target);
        if !target.prefix.is_empty() || side.open.iter().any(|(name, _)| *name == copy) {
            return Ok(());
        }
        let (from, to, child_has_it) = self.make_link(target.end, link)?;
        let to_child = to_child && self.has_child[index(target.end)] && child_has_it;
        // A child that has it by fork finds unread bytes gone with the message, as
        // docs/architecture.md says.
        let child_holds = self.side(target).open.iter().any(|(_, child)| *child);
        if child_holds && !to_child && self.unread(target)? > 0 {
            return Ok(());
        }
        self.does(target.end, format!("give {from} {}", target.name))?;
        let prefix = if to_child { "in P " } else { "" };
        self.does(target.end, format!("{prefix}take {to} {copy}"))?;
        self.side(target).open.push((copy, to_child));
        if closes { self.close(target) } else { Ok(()) }
    }

    /// Names of the ends to send over and to receive from, and whether the child has them too.
    pub(super) fn make_link(
        &mut self,
        end: End,
        link: &'static str,
    ) -> Result<(&'static str, &'static str, bool), String> {
        // What an accepted end receives, or a connected one.
        let (made, names) = match link {
            "accepted" => ("made", ("X", "W")),
            "connected" => ("made", ("W", "X")),
            _ => ("pair", ("U", "V")),
        };
        let known = self.links[index(end)].iter().find(|(name, _)| *name == made);
        let child_has_it = known.is_some_and(|(_, child)| *child);
        if known.is_none() {
            let command = if made == "pair" { "pair U V" } else { "unixlink X W" };
            self.does(end, command.to_owned())?;
            // A program that is started has them, too.
            for name in [names.0, names.1] {
                self.does(end, format!("cloexec {name} 0"))?;
            }
            self.links[index(end)].push((made, false));
        }
        Ok((names.0, names.1, child_has_it))
    }

    pub(super) fn copy(&mut self, target: &Target) -> Result<(), String> {
        let copy = format!("D{}", target.conn);
        let child = !target.prefix.is_empty();
        let side = self.side(target);
        if side.open.iter().any(|(name, _)| *name == copy) {
            return Ok(());
        }
        side.open.push((copy.clone(), child));
        self.on(target, &format!("dup {copy}")).map(drop)
    }

    pub(super) fn over(&mut self, target: &Target, onto: usize) -> Result<(), String> {
        let conn = onto % self.sides.len();
        let (name, child) = (format!("C{conn}"), !target.prefix.is_empty());
        let is_it = |open: &(String, bool)| (&open.0, open.1) == (&name, child);
        if conn == target.conn || !self.sides[conn][index(target.end)].open.iter().any(is_it) {
            return Ok(());
        }
        self.on(target, &format!("dup2 {name}"))?;
        let side = &mut self.sides[conn][index(target.end)];
        side.open.retain(|open| !is_it(open));
        if side.open.is_empty() {
            side.has_ended_writing = true;
            side.is_odd = true;
        }
        self.side(target).open.push((name, child));
        self.settle(conn, false)
    }

    pub(super) fn fork(&mut self, end: End) -> Result<(), String> {
        if self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, "fork P".to_owned())?;
        self.has_child[index(end)] = true;
        for (_, child) in &mut self.links[index(end)] {
            *child = true;
        }
        for set in self.sets[index(end)].iter_mut().flatten() {
            let copies: Vec<_> = set.open.iter().map(|(name, _)| (name.clone(), true)).collect();
            set.open.extend(copies);
        }
        for sides in &mut self.sides {
            let side = &mut sides[index(end)];
            let copies: Vec<_> = side.open.iter().map(|(name, _)| (name.clone(), true)).collect();
            side.open.extend(copies);
        }
        Ok(())
    }

    /// A process executes itself: the parent, if it has no child that it would not know afterwards.
    pub(super) fn becomes(&mut self, end: End, in_child: bool, keeps: bool) -> Result<(), String> {
        let child = in_child && self.has_child[index(end)];
        let prefix = if child { "in P " } else { "" };
        if !child && self.has_child[index(end)] {
            return Ok(());
        }
        if end == End::A && !child {
            self.does(end, "cloexec L 0".to_owned())?;
        }
        for name in self.names(end, child) {
            if keeps {
                self.does(end, format!("{prefix}cloexec {name} 0"))?;
            }
        }
        let inherits = self.inheritable(end, child)?;
        self.does(end, format!("{prefix}exec"))?;
        self.begins(end, prefix)?;
        self.loses(end, |name, is_child| is_child == child && !inherits.contains(name))
    }

    /// `how`: the command that starts it, as child `P`.
    pub(super) fn start(&mut self, end: End, how: &str) -> Result<(), String> {
        if self.has_child[index(end)] {
            return Ok(());
        }
        let mut inherits = self.inheritable(end, false)?;
        if how.contains("closing") {
            inherits.clear();
        }
        self.does(end, how.to_owned())?;
        self.has_child[index(end)] = true;
        self.begins(end, "in P ")?;
        for (_, child_has_it) in &mut self.links[index(end)] {
            *child_has_it = !how.contains("closing");
        }
        let sets = self.sets[index(end)].iter_mut().flatten().map(|set| &mut set.open);
        let sides = self.sides.iter_mut().map(|sides| &mut sides[index(end)].open);
        for open in sets.chain(sides) {
            let copies = open.iter().filter(|(name, _)| inherits.contains(name));
            let copies: Vec<_> = copies.map(|(name, _)| (name.clone(), true)).collect();
            open.extend(copies);
        }
        Ok(())
    }

    /// As `Stage::new` has them.
    fn begins(&mut self, end: End, prefix: &str) -> Result<(), String> {
        self.does(end, format!("{prefix}count pipe"))?;
        self.does(end, format!("{prefix}hold")).map(drop)
    }

    /// What the parent or the child has open.
    fn names(&self, end: End, child: bool) -> Vec<String> {
        let sets = self.sets[index(end)].iter().flatten().map(|set| &set.open);
        let sides = self.sides.iter().map(|sides| &sides[index(end)].open);
        let names = sets.chain(sides).flatten().filter(|(_, is_child)| *is_child == child);
        names.map(|(name, _)| name.clone()).collect()
    }

    fn inheritable(&mut self, end: End, child: bool) -> Result<Vec<String>, String> {
        let prefix = if child { "in P " } else { "" };
        let mut inherits = self.names(end, child);
        for name in self.names(end, child) {
            if self.stage.ask(end, &format!("{prefix}closesonexec {name}"))? == "true" {
                inherits.retain(|other| *other != name);
            }
        }
        Ok(inherits)
    }

    /// What `is_lost` says is open no more.
    fn loses(&mut self, end: End, is_lost: impl Fn(&String, bool) -> bool) -> Result<(), String> {
        for place in &mut self.sets[index(end)] {
            if let Some(set) = place {
                set.open.retain(|(name, child)| !is_lost(name, *child));
                if set.open.is_empty() {
                    *place = None;
                }
            }
        }
        for conn in 0..self.sides.len() {
            let side = &mut self.sides[conn][index(end)];
            side.open.retain(|(name, child)| !is_lost(name, *child));
            if side.open.is_empty() {
                side.has_ended_writing = true;
                side.is_odd = true;
            }
            self.settle(conn, false)?;
        }
        Ok(())
    }

    pub(super) fn reap(&mut self, end: End, exits: bool) -> Result<(), String> {
        if !self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, if exits { "in P exit 0" } else { "in P leave 0" }.to_owned())?;
        self.does(end, "reap P".to_owned())?;
        self.has_child[index(end)] = false;
        for (_, child) in &mut self.links[index(end)] {
            *child = false;
        }
        self.loses(end, |_, child| child)
    }
}
