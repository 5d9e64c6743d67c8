//! Epoll sets and what is registered in them.

use super::{Plan, Target, index};
use crate::program::{End, SetPlace};

/// So many sets an end may have at once.
pub const SETS: usize = 3;

/// A set as far as the plan has to know it.
#[derive(Default)]
pub struct Set {
    /// Each number's name, and whether it is the child's.
    pub open: Vec<(String, bool)>,
    /// At most so many are registered.
    count: usize,
}

impl Plan<'_> {
    /// The set's name for the parent or the child, if it has one there.
    fn set_name(&self, end: End, from: SetPlace, child: bool) -> Option<String> {
        let set = self.sets[index(end)][from.set].as_ref()?;
        let names: Vec<_> = set.open.iter().filter(|(_, is_child)| *is_child == child).collect();
        let nth = usize::from(from.by_copy).min(names.len().checked_sub(1)?);
        Some(names[nth].0.clone())
    }

    fn prefix(&self, end: End, in_child: bool) -> (bool, &'static str) {
        let child = in_child && self.has_child[index(end)];
        (child, if child { "in P " } else { "" })
    }

    /// Makes the set if nobody has it.
    fn need_set(&mut self, end: End, from: SetPlace, child: bool) -> Result<(), String> {
        if self.sets[index(end)][from.set].is_none() && !child {
            let name = format!("E{}", from.set);
            self.does(end, format!("epoll {name}"))?;
            self.sets[index(end)][from.set] = Some(Set { open: vec![(name, false)], count: 0 });
        }
        Ok(())
    }

    /// `how`: epadd, epmod or epdel.
    pub(super) fn nest(
        &mut self,
        end: End,
        [inner, outer]: [SetPlace; 2],
        how: &str,
        events: &str,
        in_child: bool,
    ) -> Result<(), String> {
        let (child, prefix) = self.prefix(end, in_child);
        for from in [inner, outer] {
            self.need_set(end, from, child)?;
        }
        let (Some(inside), Some(outside)) =
            (self.set_name(end, inner, child), self.set_name(end, outer, child))
        else {
            return Ok(());
        };
        if let Some(set) = &mut self.sets[index(end)][outer.set] {
            set.count += usize::from(how == "epadd");
        }
        let events = if how == "epdel" { String::new() } else { format!(" {events}") };
        self.does(end, format!("{prefix}{how} {outside} {inside}{events}")).map(drop)
    }

    /// `X0` holds the socket, `X1` that set, and so on: the last one is the outer one.
    pub(super) fn storeys(
        &mut self,
        target: &Target,
        events: &[&str],
        looks: &[&str],
    ) -> Result<(), String> {
        let (end, prefix, name) = (target.end, target.prefix, &target.name);
        let outer = events.len() - 1;
        for storey in 0..=outer {
            self.does(end, format!("{prefix}epoll X{storey}"))?;
        }
        for look in looks {
            let register = |how: &str, storey: usize| {
                let inside = if storey == 0 { name.clone() } else { format!("X{}", storey - 1) };
                format!("{prefix}{how} X{storey} {inside} {}", events[storey])
            };
            match *look {
                "sent" => self.peer_sends(target, 100)?,
                "read" => {
                    let result = self.on(target, "recv 70 dontwait")?;
                    self.moved(target, &result, false);
                }
                "watch" => drop(self.does(end, register("epadd", 0))?),
                "change" => drop(self.does(end, register("epmod", 0))?),
                "nest" | "renest" => {
                    let how = if *look == "nest" { "epadd" } else { "epmod" };
                    for storey in 1..=outer {
                        self.does(end, register(how, storey))?;
                    }
                }
                "sleep" => {
                    // Nothing is told before it sleeps, and something most often afterwards.
                    let quiet = self.stage.ask(end, &format!("{prefix}poll X{outer} in 0"))?;
                    if quiet == "nothing" {
                        self.does(end, format!("{prefix}async T epwait X{outer} 150"))?;
                        self.does(end, format!("{prefix}asleep T"))?;
                        self.does(end, register("epmod", 0))?;
                        self.does(end, register("epadd", 0))?;
                        for storey in 1..=outer {
                            self.does(end, register("epadd", storey))?;
                        }
                        self.does(end, format!("{prefix}join T"))?;
                    }
                }
                which => {
                    let storey = if which == "inner" { 0 } else { outer };
                    self.settle(target.conn, false)?;
                    self.does(end, format!("{prefix}epwait X{storey} 0"))?;
                }
            }
        }
        for storey in 0..=outer {
            self.does(end, format!("{prefix}close X{storey}"))?;
        }
        Ok(())
    }

    /// `Y` holds the socket; from `fork_at` on child `Q` has both, and in the end is gone.
    pub(super) fn across(
        &mut self,
        target: &Target,
        events: &str,
        fork_at: usize,
        looks: &[(bool, &str)],
        exits: bool,
    ) -> Result<(), String> {
        if !target.prefix.is_empty() {
            return Ok(());
        }
        let (end, name) = (target.end, &target.name);
        self.does(end, "epoll Y".to_owned())?;
        self.does(end, format!("epadd Y {name} {events}"))?;
        for (nth, &(in_child, look)) in looks.iter().enumerate() {
            if nth == fork_at {
                self.does(end, "fork Q".to_owned())?;
            }
            let prefix = if in_child && nth >= fork_at { "in Q " } else { "" };
            match look {
                "sent" => self.peer_sends(target, 100)?,
                "read" | "dry" => {
                    let len = if look == "read" { 70 } else { 9000 };
                    let command = format!("{prefix}recv {name} {len} dontwait");
                    let result = self.does(end, command)?;
                    self.moved(target, &result, false);
                }
                "wait" => {
                    self.settle(target.conn, false)?;
                    self.does(end, format!("{prefix}epwait Y 0"))?;
                }
                "forget" => drop(self.does(end, format!("{prefix}epdel Y {name}"))?),
                "watch" => drop(self.does(end, format!("{prefix}epadd Y {name} {events}"))?),
                events => drop(self.does(end, format!("{prefix}epmod Y {name} {events}"))?),
            }
        }
        if fork_at < looks.len() {
            let leaves = if exits { "in Q exit 0" } else { "in Q leave 0" };
            self.does(end, leaves.to_owned())?;
            self.does(end, "reap Q".to_owned())?;
            self.settle(target.conn, false)?;
            self.does(end, "epwait Y 0".to_owned())?;
        }
        self.does(end, "close Y".to_owned()).map(drop)
    }

    pub(super) fn poll_set(
        &mut self,
        end: End,
        from: SetPlace,
        how: &str,
        in_child: bool,
    ) -> Result<(), String> {
        let (child, prefix) = self.prefix(end, in_child);
        let Some(name) = self.set_name(end, from, child) else { return Ok(()) };
        self.settle_all()?;
        let command = match how {
            "poll" => format!("{prefix}poll {name} in+out+pri 0"),
            _ => format!("{prefix}selectnow {name} in+out+pri"),
        };
        self.does(end, command).map(drop)
    }

    pub(super) fn watch(
        &mut self,
        target: &Target,
        from: SetPlace,
        how: &str,
        events: &str,
    ) -> Result<(), String> {
        let (end, at) = (target.end, index(target.end));
        let child = !target.prefix.is_empty();
        self.need_set(end, from, child)?;
        let Some(name) = self.set_name(end, from, child) else { return Ok(()) };
        if let Some(set) = &mut self.sets[at][from.set] {
            set.count += usize::from(how == "epadd");
        }
        let command = format!("{}{how} {name} {} {events}", target.prefix, target.name);
        self.does(end, command).map(drop)
    }

    pub(super) fn unwatch(&mut self, target: &Target, from: SetPlace) -> Result<(), String> {
        let child = !target.prefix.is_empty();
        let Some(name) = self.set_name(target.end, from, child) else { return Ok(()) };
        let command = format!("{}epdel {name} {}", target.prefix, target.name);
        self.does(target.end, command).map(drop)
    }

    pub(super) fn wait(
        &mut self,
        end: End,
        from: SetPlace,
        in_child: bool,
        max: usize,
    ) -> Result<(), String> {
        let (child, prefix) = self.prefix(end, in_child);
        let Some(name) = self.set_name(end, from, child) else { return Ok(()) };
        self.settle_all()?;
        let count = self.sets[index(end)][from.set].as_ref().map_or(0, |set| set.count);
        // Which of several fills a small buffer first nothing promises: all have their turn, where
        // the kernel and the rings take turns as well.
        let rounds = 2 * count.div_ceil(max).max(1);
        let rounds = if max < count { rounds } else { 1 };
        self.does(end, format!("{prefix}epwait {name} 0 {max} {rounds}")).map(drop)
    }

    pub(super) fn copy_set(
        &mut self,
        end: End,
        set: usize,
        how: &'static str,
    ) -> Result<(), String> {
        let (at, copy) = (index(end), format!("F{set}"));
        let Some(known) = &self.sets[at][set] else { return Ok(()) };
        let Some((name, _)) = known.open.iter().find(|(_, child)| !child).cloned() else {
            return Ok(());
        };
        if known.open.iter().any(|(name, _)| *name == copy) {
            return Ok(());
        }
        match how {
            "dup" => drop(self.does(end, format!("dup {name} {copy}"))?),
            "dupfd" => drop(self.does(end, format!("dupfd {name} {copy} 200"))?),
            _ => {
                let (from, to, _) = self.make_link(end, how)?;
                self.does(end, format!("give {from} {name}"))?;
                self.does(end, format!("take {to} {copy}"))?;
            }
        }
        if let Some(known) = &mut self.sets[at][set] {
            known.open.push((copy, false));
        }
        Ok(())
    }

    pub(super) fn pass_set(
        &mut self,
        end: End,
        set: usize,
        link: &'static str,
    ) -> Result<(), String> {
        let (at, copy) = (index(end), format!("H{set}"));
        let Some(known) = &self.sets[at][set] else { return Ok(()) };
        let Some((name, _)) = known.open.iter().find(|(_, child)| !child).cloned() else {
            return Ok(());
        };
        let (from, to, child_has_it) = self.make_link(end, link)?;
        let is_there = |set: &Set| set.open.iter().any(|(name, _)| *name == copy);
        if !self.has_child[at] || !child_has_it || self.sets[at][set].as_ref().is_some_and(is_there)
        {
            return Ok(());
        }
        self.does(end, format!("give {from} {name}"))?;
        self.does(end, format!("in P take {to} {copy}"))?;
        if let Some(known) = &mut self.sets[at][set] {
            known.open.push((copy, true));
        }
        Ok(())
    }

    pub(super) fn close_set(
        &mut self,
        end: End,
        from: SetPlace,
        in_child: bool,
    ) -> Result<(), String> {
        let (child, prefix) = self.prefix(end, in_child);
        let Some(name) = self.set_name(end, from, child) else { return Ok(()) };
        self.does(end, format!("{prefix}close {name}"))?;
        let place = &mut self.sets[index(end)][from.set];
        if let Some(set) = place {
            set.open.retain(|(other, is_child)| (other, *is_child) != (&name, child));
            if set.open.is_empty() {
                *place = None;
            }
        }
        Ok(())
    }
}
