//! Guests that are to have no memory for a while, as before they move to another host, and what
//! `yasmin host` is told.

use super::desk::Question;
use super::kept::{self, Kept, Qemu};
use super::plugging::Plug;
use super::{Host, Segment, Shared};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use yasmin_control::host::{Answer, Ask, Guest, HostStatus, Region};

const WITHIN_MOST: Duration = Duration::from_secs(600);

/// Who has left: guests, and pairs of which both are here otherwise. Pure.
#[derive(Default)]
pub struct Left {
    keys: HashSet<[usize; 2]>,
    /// The QEMUs that guests had when they left, where they are known.
    qemus: HashMap<usize, Qemu>,
}

/// One guest or two, in one order.
fn key(guests: &[usize]) -> Option<[usize; 2]> {
    match *guests {
        [guest] => Some([guest, guest]),
        [a, b] if a != b => Some([a.min(b), a.max(b)]),
        _ => None,
    }
}

impl Left {
    pub fn has(&self, guests: [usize; 2]) -> bool {
        let [a, b] = guests;
        self.has_guest(a)
            || self.has_guest(b)
            || key(&guests).is_some_and(|key| self.keys.contains(&key))
    }

    pub fn has_guest(&self, guest: usize) -> bool {
        self.keys.contains(&[guest, guest])
    }

    fn leave(&mut self, key: [usize; 2], qemu: Option<Qemu>) {
        self.keys.insert(key);
        if let Some(qemu) = qemu {
            self.qemus.insert(key[0], qemu);
        }
    }

    fn join(&mut self, key: [usize; 2]) -> bool {
        if key[0] == key[1] {
            self.qemus.remove(&key[0]);
        }
        self.keys.remove(&key)
    }

    /// Its QEMU has ended: who comes next under this name is not who left. Whether it had left.
    fn ended(&mut self, guest: usize) -> bool {
        self.join([guest, guest])
    }

    /// The guest has this QEMU now. Whether it had left with another one: then it has not left.
    fn came(&mut self, guest: usize, qemu: Option<Qemu>) -> bool {
        match (self.qemus.get(&guest), qemu) {
            (Some(then), Some(now)) if *then != now => self.ended(guest),
            _ => false,
        }
    }

    fn pairs(&self) -> impl Iterator<Item = [usize; 2]> {
        self.keys.iter().copied().filter(|[a, b]| a != b)
    }
}

impl Host {
    /// Goes on with what an earlier broker was told.
    pub(super) fn find_left(&mut self) {
        let kept = kept::read(&self.folder).unwrap_or_else(|error| {
            tracing::warn!(
                "cannot read who has left in {}, so everybody may have memory: {error}; say 'yasmin host leave' \
                 again for guests that are about to move",
                self.folder.display()
            );
            Vec::new()
        });
        for one in kept {
            let (names, qemu) = match one {
                Kept::Guest { name, qemu } => (vec![name], qemu),
                Kept::Pair(names) => (names.to_vec(), None),
            };
            // Guests that the file no longer names have left nobody.
            if let Ok(key) = self.guests_named(&names) {
                tracing::info!("left before, and gets no memory: {}", names.join(" and "));
                self.left.leave(key, qemu);
            }
        }
    }

    fn keep_left(&self) {
        let mut keys: Vec<_> = self.left.keys.iter().copied().collect();
        keys.sort_unstable();
        let name = |guest| self.name_of(guest).to_owned();
        let kept = keys.into_iter().map(|[a, b]| match a == b {
            true => Kept::Guest { name: name(a), qemu: self.left.qemus.get(&a).copied() },
            false => Kept::Pair([name(a), name(b)]),
        });
        if let Err(error) = kept::write(&self.folder, &kept.collect::<Vec<_>>()) {
            crate::rarely::warn!(
                "cannot write who has left into {}, so a restart of this broker forgets it: {error}",
                self.folder.display()
            );
        }
    }

    pub(super) fn qemu_of(&self, guest: usize) -> Option<Qemu> {
        Qemu::of_process(self.guests[guest].qemu_pid())
    }

    /// A guest's QEMU answers.
    pub(super) fn qemu_came(&mut self, guest: usize) {
        if self.left.came(guest, self.qemu_of(guest)) {
            self.keep_left();
        }
    }

    /// A guest's QEMU has ended.
    pub(super) fn qemu_ended(&mut self, guest: usize) {
        if self.left.ended(guest) {
            self.keep_left();
        }
    }

    /// What is asked, before regions are looked at.
    pub(super) fn hear_desk(&mut self, now: Instant) {
        let questions = self.desk.as_mut().map_or_else(Vec::new, |desk| desk.questions(now));
        for question in questions {
            self.hear_question(question, now);
        }
    }

    fn hear_question(&mut self, question: Question, now: Instant) {
        let answer = match &question.ask {
            Err(why) => Answer::Refused(why.clone()),
            Ok(Ask::Status) => Answer::Status(self.status()),
            Ok(Ask::Leave { guests, within_s }) => match self.guests_named(guests) {
                Err(why) => Answer::Refused(why),
                Ok(key) => {
                    tracing::info!("guests leave: {}", guests.join(" and "));
                    self.left.leave(key, self.qemu_of(key[0]).filter(|_| key[0] == key[1]));
                    self.keep_left();
                    let within = Duration::from_secs((*within_s).into()).min(WITHIN_MOST);
                    if let Some(desk) = &mut self.desk {
                        desk.wait(question, key.to_vec(), now + within);
                    }
                    return;
                }
            },
            Ok(Ask::Join { guests }) => match self.guests_named(guests) {
                Err(why) => Answer::Refused(why),
                Ok(key) => {
                    self.left.join(key);
                    self.keep_left();
                    Answer::Done
                }
            },
            Ok(Ask::Segment(ask)) => self.segment_asked(ask),
        };
        question.answer(&answer);
    }

    /// Who waits for memory to go is told, after regions were looked at.
    pub(super) fn answer_desk(&mut self, now: Instant) {
        let Some(mut desk) = self.desk.take() else { return };
        desk.answer_waiting(now, |key, is_late| {
            let of = |shared: &&Shared| key.iter().all(|&guest| shared.side_of(guest).is_some());
            let has = |one: &&Segment| {
                let of_guest = |plug: &Plug| plug.guest == key[0] && !plug.part.is_absent();
                key[0] == key[1] && one.plugs().any(of_guest)
            };
            let keeps = match (self.shared.iter().find(of), self.segments.iter().find(has)) {
                (None, None) => return Some(Answer::Done),
                (Some(shared), _) => self.who_keeps(shared),
                (None, Some(segment)) => format!(
                    "programs in guest {} still have segment {name}; end them, or take it from under \
                     them with 'yasmin host segment rm --force {name}'",
                    self.name_of(key[0]),
                    name = segment.name
                ),
            };
            is_late.then_some(Answer::Refused(keeps))
        });
        self.desk = Some(desk);
    }

    fn who_keeps(&self, shared: &Shared) -> String {
        let keeps = shared.plugs.iter().find(|plug| !plug.part.is_absent());
        format!(
            "guest {} still has memory: its system has not let it go yet; it is asked again and again, \
             and gets no other",
            self.name_of(keeps.unwrap_or(&shared.plugs[0]).guest)
        )
    }

    pub(super) fn guests_named(&self, names: &[String]) -> Result<[usize; 2], String> {
        let mut numbers = Vec::new();
        for name in names {
            let known = self.guests.iter().position(|guest| guest.config.name == *name);
            numbers.push(known.ok_or_else(|| {
                let all: Vec<_> = self.guests.iter().map(|g| g.config.name.as_str()).collect();
                format!("no guest is named '{name}'; there are: {}", all.join(", "))
            })?);
        }
        key(&numbers).ok_or_else(|| "name one guest, or two different ones".to_owned())
    }

    fn status(&self) -> HostStatus {
        let guests = self.guests.iter().enumerate().map(|(number, guest)| {
            let regions = self.shared.iter().filter(|shared| shared.side_of(number).is_some());
            let has = |one: &&Segment| {
                one.plugs().any(|plug| plug.guest == number && !plug.part.is_absent())
            };
            let segments: u64 = self.segments.iter().filter(has).map(Segment::file_bytes).sum();
            Guest {
                name: guest.config.name.clone(),
                has_qemu: guest.qmp.is_up(),
                has_broker: guest.is_heard,
                has_left: self.left.has_guest(number),
                memory_bytes: regions.map(Shared::bytes).sum::<u64>() + segments,
            }
        });
        let regions = self.shared.iter().map(|shared| Region {
            region: format!("{:016x}", shared.region.number),
            guests: shared.guests().map(|guest| self.name_of(guest).to_owned()),
            state: match shared {
                _ if shared.is_leaving => "going",
                _ if shared.is_ready() => "ready",
                _ => "coming",
            }
            .to_owned(),
            memory_bytes: shared.bytes(),
            slices: shared.region.slices(),
            held: shared.region.held(),
        });
        let mut pairs: Vec<_> = self.left.pairs().collect();
        pairs.sort_unstable();
        HostStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            memory_used_bytes: self.given_bytes(),
            memory_limit_bytes: self.memory_limit,
            guest_limit_bytes: self.guest_limit,
            guests: guests.collect(),
            pairs_left: pairs
                .into_iter()
                .map(|pair| pair.map(|guest| self.name_of(guest).to_owned()))
                .collect(),
            regions: regions.collect(),
            segments: self.segments_status(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_leaves_all_and_a_pair_itself() {
        let mut left = Left::default();
        left.leave(key(&[2, 1]).unwrap(), None);
        assert!(left.has([1, 2]) && left.has([2, 1]) && !left.has([0, 1]) && !left.has_guest(1));
        left.leave(key(&[0]).unwrap(), None);
        assert!(left.has([0, 1]) && left.has([2, 0]));
        assert_eq!(left.pairs().collect::<Vec<_>>(), [[1, 2]]);
        assert!(left.ended(0) && !left.ended(1));
        assert!(!left.has([0, 1]) && left.has([1, 2]));
        // With the QEMU that it had when it left, and with one that nobody can tell, it is the same guest.
        let qemus = [7, 8].map(|pid| Qemu { pid, began: 1 });
        left.leave(key(&[0]).unwrap(), Some(qemus[0]));
        assert!(!left.came(0, Some(qemus[0])) && !left.came(0, None) && left.has_guest(0));
        assert!(left.came(0, Some(qemus[1])) && !left.has_guest(0));
        assert!(!left.came(0, Some(qemus[0])));
        assert_eq!((key(&[]), key(&[1, 1]), key(&[1, 2, 3])), (None, None, None));
    }
}
