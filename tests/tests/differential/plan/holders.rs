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

    pub(super) fn pass(&mut self, target: &Target) -> Result<(), String> {
        let copy = format!("G{}", target.conn);
        let side = self.side(target);
        if !target.prefix.is_empty() || side.open.iter().any(|(name, _)| *name == copy) {
            return Ok(());
        }
        self.make_link(target.end)?;
        let at = index(target.end);
        let to_child = self.has_child[at] && self.child_has_pair[at];
        self.does(target.end, format!("give U {}", target.name))?;
        let prefix = if to_child { "in P " } else { "" };
        self.does(target.end, format!("{prefix}take V {copy}"))?;
        self.side(target).open.push((copy, to_child));
        Ok(())
    }

    pub(super) fn make_link(&mut self, end: End) -> Result<(), String> {
        let has_link = &mut self.has_pair[index(end)];
        if !std::mem::replace(has_link, true) {
            self.does(end, "pair U V".to_owned())?;
        }
        Ok(())
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

    pub(super) fn fork(&mut self, end: End) -> Result<(), String> {
        if self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, "fork P".to_owned())?;
        self.has_child[index(end)] = true;
        self.child_has_pair[index(end)] = self.has_pair[index(end)];
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

    pub(super) fn reap(&mut self, end: End) -> Result<(), String> {
        if !self.has_child[index(end)] {
            return Ok(());
        }
        self.does(end, "in P leave 0".to_owned())?;
        self.does(end, "reap P".to_owned())?;
        self.has_child[index(end)] = false;
        for place in &mut self.sets[index(end)] {
            if let Some(set) = place {
                set.open.retain(|(_, child)| !child);
                if set.open.is_empty() {
                    *place = None;
                }
            }
        }
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
