//! Segments that guests share: who gets them, and what is said of them.
//!
//! A segment goes from a guest when nobody there has it any more: the guest's broker is told that it ends,
//! and says when it is unused. Only `--force`, a guest that ends and whoever unplugs devices by hand take it
//! from under programs, which then get SIGBUS. A broker that ends leaves segments where they are.

use super::config::Monitor;
use super::plugging::{Part, Spot};
use super::segment::{Segment, USERS_MAX, file_bytes, place_at};
use super::{Host, random};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use yasmin_control::host::{Answer, Right, SegmentAsk, SegmentGuest, SegmentStatus};
use yasmin_control::segment::{
    MAX_BYTES, MIN_BYTES, Name, Rights, Whom, file_bytes as mapped_bytes,
};
use yasmin_control::uplink::{DOMAINS_MAX, FromHost, Life};

/// Questions about members that wait for an answer, and how long they do.
const PROBES_MAX: usize = 4096;
const PROBED_WITHIN: Duration = Duration::from_secs(2);

/// Questions of one guest that are passed on to others in a second: they take those guests' time.
const PROBES_A_SECOND: u32 = 1000;

/// The same of bells: a sleeper whose bell does not ring looks after 10 ms.
const RINGS_A_SECOND: u32 = 2000;

/// Questions of guests about members in other guests.
#[derive(Default)]
pub struct Probes {
    /// By this broker's number: who asked, by what number of his own, who is asked, until when.
    waiting: HashMap<u64, Probe>,
    next: u64,
    asked: ASecond,
}

/// How much each guest has asked for in the second that began then.
#[derive(Default)]
pub struct ASecond(HashMap<usize, (Instant, u32)>);

impl ASecond {
    /// Whether a guest may ask for one thing more.
    fn allows(&mut self, asker: usize, most: u32, now: Instant) -> bool {
        let (since, count) = self.0.entry(asker).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= most
    }
}

struct Probe {
    asker: usize,
    id: u64,
    asked: usize,
    until: Instant,
}

impl Probes {
    /// A number for the question; `None`: too many wait, or come from this guest.
    fn ask(&mut self, asker: usize, id: u64, asked: usize, now: Instant) -> Option<u64> {
        if !self.asked.allows(asker, PROBES_A_SECOND, now) {
            return None;
        }
        if self.waiting.len() >= PROBES_MAX {
            self.waiting.retain(|_, probe| probe.until > now);
        }
        if self.waiting.len() >= PROBES_MAX {
            return None;
        }
        self.next += 1;
        self.waiting.insert(self.next, Probe { asker, id, asked, until: now + PROBED_WITHIN });
        Some(self.next)
    }

    /// Who asked what this guest answers, and by what number.
    fn answered(&mut self, asked: usize, number: u64) -> Option<(usize, u64)> {
        self.waiting.get(&number).filter(|probe| probe.asked == asked)?;
        self.waiting.remove(&number).map(|probe| (probe.asker, probe.id))
    }
}

impl Host {
    /// Those that an earlier broker made.
    pub(super) fn find_segments(&mut self) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        let guest_of = |name: &str| self.guests.iter().position(|guest| guest.config.name == *name);
        let mut found = Vec::new();
        for file in files.flatten() {
            let file_name = file.file_name();
            let adopted =
                file_name.to_str().and_then(|name| Segment::adopt(&self.folder, name, guest_of));
            match adopted {
                None => {}
                Some(Ok(segment)) => found.push(segment),
                Some(Err(error)) => {
                    tracing::warn!(
                        "cannot use {}, so the guests do not get that segment: {error}",
                        file.path().display()
                    );
                }
            }
        }
        for segment in found {
            let Segment { name, place, .. } = segment;
            let is_named = self.segments.iter().any(|other| other.name == name);
            if is_named || !self.addresses.take_at(place.start(), place.mapped_bytes()) {
                tracing::warn!("segment {name} is another's place or name: guests do not get it");
                continue;
            }
            tracing::info!("segment {name} was found again");
            self.segments.push(segment);
        }
    }

    /// A guest is known from now on: it has its seats in segments that an earlier broker made.
    pub(super) fn seat(&mut self, guest: usize) {
        let name = &self.guests[guest].config.name;
        let seats = self.segments.iter_mut().flat_map(|segment| &mut segment.seats);
        for seat in seats.filter(|seat| seat.plug.guest == usize::MAX && seat.name == *name) {
            seat.plug.guest = guest;
        }
    }

    /// Whether a guest is to have a segment: all of its programs may get it, or some have it still.
    pub(super) fn has_seat(&self, at: usize, domain: usize) -> bool {
        let seat = &self.segments[at].seats[domain];
        if self.is_ending {
            return !seat.plug.part.is_absent();
        }
        self.is_seat_wanted(at, domain) || (seat.was_told && !seat.is_unused)
    }

    /// Whether programs of a guest may get a segment as it is plugged there, or will be.
    fn is_seat_wanted(&self, at: usize, domain: usize) -> bool {
        let segment = &self.segments[at];
        let seat = &segment.seats[domain];
        let fits =
            seat.plug.part.is_absent() || seat.is_read_only == (seat.rights() < Rights::Write);
        !segment.is_removed
            && segment.is_filled()
            && seat.rights() > Rights::None
            && seat.plug.guest < self.guests.len()
            && !self.left.has_guest(seat.plug.guest)
            && fits
    }

    /// Tells a guest all of a segment that it has.
    pub(super) fn tell_of_segment(&mut self, at: usize, domain: usize) {
        let segment = &self.segments[at];
        let seat = &segment.seats[domain];
        let (guest, region) = (seat.plug.guest, segment.number);
        let (name, place) = (segment.name, segment.place);
        let mut messages = vec![
            FromHost::Segment { region, domain: domain as u8, place },
            FromHost::Name { region, name },
        ];
        for &(whom, rights) in &seat.users {
            messages.push(FromHost::Rights { region, whom, rights });
        }
        messages.push(FromHost::Plugged { region });
        if seat.is_ending {
            messages.push(FromHost::End { region, number: seat.ends });
        }
        for message in messages {
            self.tell(guest, message);
        }
    }

    pub(super) fn segment_refused(&mut self, at: usize, domain: usize, why: String) {
        let segment = &mut self.segments[at];
        let seat = &mut segment.seats[domain];
        tracing::warn!("guest {} does not get segment {}: {why}", seat.name, segment.name);
        seat.trouble = Some(why);
    }

    pub(super) fn look_at_segments(&mut self, now: Instant) {
        for at in 0..self.segments.len() {
            self.segments[at].fill();
            for domain in 0..self.segments[at].seats.len() {
                if self.segments[at].seats[domain].plug.guest < self.guests.len() {
                    self.look_at_seat(at, domain, now);
                }
            }
        }
        let is_gone = |segment: &Segment| {
            segment.is_removed && segment.plugs().all(|plug| plug.part.is_absent())
        };
        for segment in self.segments.extract_if(.., |segment| is_gone(segment)) {
            self.addresses.give_back(segment.place.start());
            segment.erase();
            tracing::info!("segment {} is gone", segment.name);
        }
    }

    fn look_at_seat(&mut self, at: usize, domain: usize, now: Instant) {
        let is_wanted = self.is_ending || self.is_seat_wanted(at, domain);
        let seat = &mut self.segments[at].seats[domain];
        let guest = seat.plug.guest;
        // Before that it is not known what is plugged there.
        let is_known = self.guests[guest].is_known;
        if is_known && seat.plug.is_plugged() && seat.is_ending == is_wanted {
            // It ends there, or it does not after all.
            (seat.is_ending, seat.is_unused) = (!is_wanted, false);
            seat.ends += 1;
            self.tell_of_segment(at, domain);
        } else if seat.plug.part.is_absent() && is_wanted && !self.has_slot(guest) {
            self.make_room(guest);
            let seat = &mut self.segments[at].seats[domain];
            seat.trouble = Some(
                "it has no empty port; give it another pcie-root-port and name that in slots="
                    .to_owned(),
            );
        }
        self.move_plug(Spot::Segment { at, domain }, now);
    }

    fn seat_of(&self, guest: usize, region: u64) -> Option<(usize, usize)> {
        let at = self.segments.iter().position(|segment| segment.number == region)?;
        Some((at, self.segments[at].domain_of(guest)?))
    }

    /// A guest's broker has found a segment.
    pub(super) fn segment_told(&mut self, guest: usize, region: u64) {
        let Some((at, domain)) = self.seat_of(guest, region) else { return };
        let segment = &mut self.segments[at];
        let seat = &mut segment.seats[domain];
        seat.was_told = true;
        seat.trouble = None;
        if !std::mem::replace(&mut seat.plug.is_told, true) {
            tracing::info!("guest {} has segment {}", seat.name, segment.name);
        }
    }

    pub(super) fn segment_gone(&mut self, guest: usize, region: u64) {
        if let Some((at, domain)) = self.seat_of(guest, region) {
            self.segments[at].seats[domain].lost();
        }
    }

    /// Nobody in the guest has it any more. `number`: of the end that this answers.
    pub(super) fn segment_unused(&mut self, guest: usize, region: u64, number: u64) {
        if let Some((at, domain)) = self.seat_of(guest, region) {
            let seat = &mut self.segments[at].seats[domain];
            seat.is_unused |= seat.is_ending && seat.ends == number;
        }
    }

    /// What a guest's broker says counts no more.
    pub(super) fn forget_seats(&mut self, guest: usize) {
        for segment in &mut self.segments {
            if let Some(domain) = segment.domain_of(guest) {
                segment.seats[domain].plug.is_told = false;
            }
        }
    }

    /// Whether a member in another guest lives.
    pub(super) fn probe(&mut self, asker: usize, id: u64, region: u64, slot: u64, now: Instant) {
        let Some((at, _)) = self.seat_of(asker, region) else { return };
        let domain = (slot.saturating_sub(1) % u64::from(DOMAINS_MAX)) as usize;
        let life = match self.segments[at].seats.get(domain) {
            None => Life::Dead,
            // Its system has ended, or has lost the memory; nobody there has it since.
            Some(seat) if !seat.was_told => Life::Dead,
            Some(seat) if seat.plug.is_ready() && seat.plug.guest != asker => {
                let asked = seat.plug.guest;
                if let Some(id) = self.probes.ask(asker, id, asked, now) {
                    return self.tell(asked, FromHost::Probe { id, region, slot });
                }
                Life::Unknown
            }
            Some(_) => Life::Unknown,
        };
        self.tell(asker, FromHost::Life { id, life });
    }

    pub(super) fn probed(&mut self, asked: usize, number: u64, life: Life) {
        if let Some((asker, id)) = self.probes.answered(asked, number) {
            self.tell(asker, FromHost::Life { id, life });
        }
    }

    /// Passes the ring of a bell on to those of these guests that have the segment, and read what they
    /// are told: nothing is kept for one that is paused.
    pub(super) fn ring(&mut self, asker: usize, region: u64, bell: u8, domains: u8, now: Instant) {
        let Some((at, own)) = self.seat_of(asker, region) else { return };
        for domain in (0..self.segments[at].seats.len()).filter(|&domain| domain != own) {
            let seat = &mut self.segments[at].seats[domain];
            let is_there = seat.plug.is_ready() && seat.plug.guest != asker;
            if domains >> domain & 1 == 0 || !is_there {
                continue;
            }
            if !self.rings.allows(asker, RINGS_A_SECOND, now) {
                return;
            }
            let guest = seat.plug.guest;
            if self.guests[guest].port.is_flushed() {
                seat.rings += 1;
                self.tell(guest, FromHost::Ring { region, bell });
            }
        }
    }

    /// What the administrator wants done.
    pub(super) fn segment_asked(&mut self, ask: &SegmentAsk) -> Answer {
        let result = match ask {
            SegmentAsk::Create { name, size_bytes, rights } => {
                self.create_segment(name, *size_bytes, rights)
            }
            SegmentAsk::Allow { name, rights } => self.allow(name, rights),
            SegmentAsk::Remove { name, force } => self.remove_segment(name, *force),
        };
        result.map_or_else(Answer::Refused, |()| Answer::Done)
    }

    fn create_segment(
        &mut self,
        text: &str,
        size_bytes: u64,
        rights: &[Right],
    ) -> Result<(), String> {
        let name = Name::new(text).ok_or_else(|| {
            format!(
                "'{text}' is no name; use 1 to 32 letters, digits, '.', '-' and '_', first a letter or a \
                 digit"
            )
        })?;
        if self.segments.iter().any(|segment| segment.name == name && !segment.is_removed) {
            return Err(format!("there is a segment '{name}' already"));
        }
        if !(MIN_BYTES..=MAX_BYTES).contains(&size_bytes) {
            return Err(format!("a segment cannot have {size_bytes} bytes"));
        }
        let rights = self.understood(rights)?;
        let mut guests: Vec<usize> = rights.iter().map(|&(guest, ..)| guest).collect();
        guests.sort_unstable();
        guests.dedup();
        if guests.len() > usize::from(DOMAINS_MAX) {
            return Err(format!("a segment has {DOMAINS_MAX} guests at most"));
        }
        let len_bytes = mapped_bytes(size_bytes, false);
        let start = self.addresses.take(len_bytes).ok_or("no addresses are left")?;
        let made = self.make_segment(name, start, size_bytes, &rights);
        if made.is_err() {
            self.addresses.give_back(start);
        }
        made
    }

    fn make_segment(
        &mut self,
        name: Name,
        start: u64,
        size_bytes: u64,
        rights: &[(usize, Whom, Rights)],
    ) -> Result<(), String> {
        let place = place_at(start, size_bytes).ok_or("no addresses are left")?;
        let left = self.memory_limit.saturating_sub(self.given_bytes());
        if file_bytes(&place) > left {
            return Err(format!(
                "it takes {} MiB, and {} MiB are left of --memory-limit",
                file_bytes(&place) >> 20,
                left >> 20
            ));
        }
        let made = Segment::create(&self.folder, random(), name, place);
        let mut segment =
            made.map_err(|error| format!("cannot make it in {}: {error}", self.folder.display()))?;
        if let Err(why) = self.give(&mut segment, rights) {
            segment.erase();
            return Err(why);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Memory that this broker has given.
    pub(super) fn given_bytes(&self) -> u64 {
        let of_segments: u64 = self.segments.iter().map(Segment::file_bytes).sum();
        self.shared.iter().map(super::Shared::bytes).sum::<u64>() + of_segments
    }

    /// Gives rights, and writes them down.
    fn give(&self, segment: &mut Segment, rights: &[(usize, Whom, Rights)]) -> Result<(), String> {
        for &(guest, whom, rights) in rights {
            let seat = segment
                .seat(self.name_of(guest), guest)
                .ok_or_else(|| format!("a segment has {DOMAINS_MAX} guests at most"))?;
            seat.allow(whom, rights);
            if seat.users.len() > USERS_MAX {
                return Err(format!("a segment has {USERS_MAX} users of one guest at most"));
            }
        }
        segment
            .keep()
            .map_err(|error| format!("cannot write it down in {}: {error}", self.folder.display()))
    }

    fn allow(&mut self, name: &str, rights: &[Right]) -> Result<(), String> {
        let rights = self.understood(rights)?;
        let at = self.segment_named(name)?;
        let mut segment = self.segments.swap_remove(at);
        let users: Vec<_> = segment.seats.iter().map(|seat| seat.users.clone()).collect();
        let given = self.give(&mut segment, &rights);
        if given.is_err() {
            segment.seats.truncate(users.len());
            for (seat, users) in segment.seats.iter_mut().zip(users) {
                seat.users = users;
            }
        }
        let told: Vec<usize> =
            (0..segment.seats.len()).filter(|&at| segment.seats[at].plug.is_plugged()).collect();
        self.segments.push(segment);
        for domain in told {
            self.tell_of_segment(self.segments.len() - 1, domain);
        }
        given
    }

    fn remove_segment(&mut self, name: &str, force: bool) -> Result<(), String> {
        // One that goes already may be made to go now.
        let at = match self.segments.iter().position(|one| one.name.as_str() == name) {
            Some(at) if force => at,
            _ => self.segment_named(name)?,
        };
        let segment = &mut self.segments[at];
        let was_removed = std::mem::replace(&mut segment.is_removed, true);
        if let Err(error) = segment.keep() {
            segment.is_removed = was_removed;
            return Err(format!("cannot write it down in {}: {error}", self.folder.display()));
        }
        if force {
            for seat in &mut segment.seats {
                seat.was_told = false;
            }
        }
        Ok(())
    }

    fn segment_named(&self, name: &str) -> Result<usize, String> {
        let is_it = |one: &Segment| one.name.as_str() == name && !one.is_removed;
        self.segments.iter().position(is_it).ok_or_else(|| {
            let all = self.segments.iter().filter(|one| !one.is_removed);
            let all: Vec<_> = all.map(|one| one.name.as_str()).collect();
            if all.is_empty() {
                format!("no segment is named '{name}'; there is none")
            } else {
                format!("no segment is named '{name}'; there are: {}", all.join(", "))
            }
        })
    }

    fn understood(&self, rights: &[Right]) -> Result<Vec<(usize, Whom, Rights)>, String> {
        let understand = |right: &Right| {
            let [guest, _] = self.guests_named(std::slice::from_ref(&right.guest))?;
            let all = [Rights::None, Rights::Read, Rights::Write];
            let rights = all.into_iter().find(|one| one.describe() == right.rights);
            let rights =
                rights.ok_or_else(|| format!("'{}' is none of none, read, write", right.rights))?;
            let whom = right.user.map_or(Whom::Everyone, Whom::User);
            Ok((guest, whom, rights))
        };
        rights.iter().map(understand).collect()
    }

    pub(super) fn segments_status(&self) -> Vec<SegmentStatus> {
        let of_guest = |at: usize, domain: usize| {
            let seat = &self.segments[at].seats[domain];
            let state = match &seat.plug {
                plug if plug.part.is_absent() && !self.is_seat_wanted(at, domain) => "absent",
                _ if !self.is_seat_wanted(at, domain) => "going",
                plug if plug.is_ready() => "ready",
                _ => "coming",
            };
            let right = |&(whom, rights): &(Whom, Rights)| Right {
                guest: seat.name.clone(),
                user: match whom {
                    Whom::Everyone => None,
                    Whom::User(uid) => Some(uid),
                },
                rights: rights.describe().to_owned(),
            };
            SegmentGuest {
                guest: seat.name.clone(),
                state: state.to_owned(),
                rights: seat.users.iter().map(right).collect(),
                rings: seat.rings,
                trouble: self.trouble_of(at, domain, state),
            }
        };
        let shown = |(at, segment): (usize, &Segment)| SegmentStatus {
            name: segment.name.as_str().to_owned(),
            size_bytes: segment.place.size_bytes,
            address: segment.place.address,
            memory_bytes: segment.file_bytes(),
            used_bytes: segment.used_bytes(),
            is_removed: segment.is_removed,
            guests: (0..segment.seats.len()).map(|domain| of_guest(at, domain)).collect(),
        };
        self.segments.iter().enumerate().map(shown).collect()
    }

    fn trouble_of(&self, at: usize, domain: usize, state: &str) -> Option<String> {
        let segment = &self.segments[at];
        let seat = &segment.seats[domain];
        if let Some(want) = segment.want() {
            return Some(want.to_owned());
        }
        if state != "coming" || seat.trouble.is_some() {
            return seat.trouble.clone();
        }
        let guest = self.guests.get(seat.plug.guest)?;
        Some(match seat.plug.part {
            Part::Plugged { .. } if guest.config.monitor == Monitor::Xen => {
                "no word of it from there; does yasmind run as root, and are yasmin.ko and yasmin-region.ko \
                 loaded?"
                    .to_owned()
            }
            Part::Plugged { .. } => format!(
                "no word of it from there; does yasmind run, is yasmin-region.ko loaded, and has its port \
                 room for {} MiB (pref64-reserve=, twice as much)?",
                self.segments[at].file_bytes() >> 20
            ),
            _ if !guest.is_known => "its QEMU does not answer".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_to_who_asked() {
        let (mut probes, now) = (Probes::default(), Instant::now());
        let number = probes.ask(0, 7, 1, now).unwrap();
        assert_eq!(probes.answered(2, number), None, "nobody asked that guest");
        assert_eq!(probes.answered(1, number), Some((0, 7)));
        assert_eq!(probes.answered(1, number), None);
    }

    #[test]
    fn one_guest_asks_so_much_and_what_is_not_answered_is_forgotten() {
        let (mut probes, mut now) = (Probes::default(), Instant::now());
        let asks = |probes: &mut Probes, asker, now| {
            (0..2 * PROBES_A_SECOND).filter_map(|id| probes.ask(asker, id.into(), 9, now)).count()
        };
        assert_eq!(asks(&mut probes, 0, now), PROBES_A_SECOND as usize);
        assert_eq!(asks(&mut probes, 1, now), PROBES_A_SECOND as usize);
        let step = Duration::from_secs(1);
        for _ in 0..10 {
            now += step;
            assert_eq!(asks(&mut probes, 0, now), PROBES_A_SECOND as usize);
            assert!(probes.waiting.len() <= PROBES_MAX);
        }
    }
}
