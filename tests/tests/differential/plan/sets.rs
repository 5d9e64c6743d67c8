//! Epoll sets and what is registered in them.

use super::{Plan, Target, index};
use crate::program::{End, SetPlace};

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

    pub(super) fn watch(
        &mut self,
        target: &Target,
        from: SetPlace,
        how: &str,
        events: &str,
    ) -> Result<(), String> {
        let (end, at) = (target.end, index(target.end));
        let child = !target.prefix.is_empty();
        if self.sets[at][from.set].is_none() && !child {
            let name = format!("E{}", from.set);
            self.does(end, format!("epoll {name}"))?;
            self.sets[at][from.set] = Some(Set { open: vec![(name, false)], count: 0 });
        }
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
        // Which of several fills a small buffer first nothing promises: all have their turn.
        let rounds = count.div_ceil(max).max(1);
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
