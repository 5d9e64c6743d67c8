//! What has been set and what it was, on disk before it is set: whoever comes next can put it
//! back, even after SIGKILL.
//!
//! One line of JSON a step. A journal is held by one process at a time, by a lock on a file
//! beside it. A line that was cut off by a crash stands for a step that was not yet taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::actuator::{self, Step};

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{0} is held: another yasmin place is at work")]
    Held(PathBuf),
    #[error("{path}: {error}")]
    System { path: PathBuf, error: io::Error },
}

pub struct Journal {
    path: PathBuf,
    file: File,
    steps: Vec<Step>,
    _lock: File,
}

impl Journal {
    /// Takes hold of a journal, with whatever an earlier holder left in it.
    pub fn open(path: &Path) -> Result<Self, Trouble> {
        let system = |error| Trouble::System { path: path.to_owned(), error };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(system)?;
        }
        let lock = path.with_extension("lock");
        let lock = OpenOptions::new().create(true).append(true).open(lock).map_err(system)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => Trouble::Held(path.to_owned()),
            other => system(other.into()),
        })?;
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(system(error)),
        };
        let steps = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(system)?;
        Ok(Self { path: path.to_owned(), file, steps, _lock: lock })
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns once `steps` are on disk.
    pub fn note(&mut self, steps: &[Step]) -> Result<(), Trouble> {
        let mut lines = String::new();
        for step in steps {
            lines += &serde_json::to_string(step).unwrap_or_default();
            lines.push('\n');
        }
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Trouble::System { path: self.path.clone(), error })?;
        self.steps.extend_from_slice(steps);
        Ok(())
    }

    /// Takes everything from the step numbered `from` on back, the last first, and forgets what
    /// could be taken back. Returns what could not.
    pub fn undo(&mut self, from: usize) -> Vec<actuator::Trouble> {
        let mut stuck = Vec::new();
        let mut troubles = Vec::new();
        for step in self.steps.split_off(from.min(self.steps.len())).into_iter().rev() {
            if let Err(trouble) = actuator::take_back(&step) {
                troubles.push(trouble);
                stuck.push(step);
            }
        }
        self.steps.extend(stuck.into_iter().rev());
        if let Err(error) = self.rewrite() {
            troubles.push(actuator::Trouble::Failed(error.to_string()));
        }
        troubles
    }

    /// Forgets what lies between the first and the last step of one thing.
    pub fn tidy(&mut self) -> Result<(), Trouble> {
        let mut kept: Vec<Step> = Vec::new();
        for step in self.steps.drain(..) {
            if !kept.iter_mut().any(|known| known.absorb(&step)) {
                kept.push(step);
            }
        }
        self.steps = kept;
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<(), Trouble> {
        let system = |error| Trouble::System { path: self.path.clone(), error };
        let mut lines = String::new();
        for step in &self.steps {
            lines += &serde_json::to_string(step).unwrap_or_default();
            lines.push('\n');
        }
        let fresh = self.path.with_extension("new");
        let mut file = File::create(&fresh).map_err(system)?;
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()).map_err(system)?;
        fs::rename(&fresh, &self.path).map_err(system)?;
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(system)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Process;
    use yasmin_topology::CpuId;

    fn step(started: u64, before: u32, after: u32) -> Step {
        let thread = Process { pid: u32::MAX, started };
        let (before, after) = ([CpuId(before)].into(), [CpuId(after)].into());
        Step::Affinity { of: thread, thread, before, after }
    }

    #[test]
    fn what_a_killed_holder_noted_is_there_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/journal");
        let mut journal = Journal::open(&path).unwrap();
        journal.note(&[step(1, 0, 1), step(2, 0, 1)]).unwrap();
        assert!(matches!(Journal::open(&path), Err(Trouble::Held(_))));
        drop(journal);
        // Cut off in the middle of a line.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        assert_eq!(journal.steps(), [step(1, 0, 1)]);
        // Nobody has that number: nothing is left to be put back.
        assert!(journal.undo(0).is_empty() && journal.steps().is_empty());
        drop(journal);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn many_moves_of_one_thread_are_one_way_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("journal")).unwrap();
        journal.note(&[step(1, 0, 1), step(2, 5, 6), step(1, 1, 2), step(1, 2, 3)]).unwrap();
        journal.tidy().unwrap();
        assert_eq!(journal.steps(), [step(1, 0, 3), step(2, 5, 6)]);
        // CPU 3 is unplugged: the kernel lets the thread run on 0, 1 and 2.
        let Step::Affinity { of, thread, .. } = step(1, 0, 0) else { unreachable!() };
        let before = [0, 1, 2].map(CpuId).into();
        let after = [CpuId(2)].into();
        journal.note(&[Step::Affinity { of, thread, before, after }]).unwrap();
        journal.tidy().unwrap();
        assert_eq!(journal.steps(), [step(1, 0, 2), step(2, 5, 6)]);
    }
}
