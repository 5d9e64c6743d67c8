//! How a region comes into a guest and out of it, by its QEMU's monitor.
//!
//! ```text
//!  Absent ─ object-add ─▶ Making ─ device_add ─▶ Plugging ──▶ Plugged { slot }
//!    ▲                                                             │ device_del
//!    └─ Freeing ◀─ object-del ─ Removing ◀── DEVICE_DELETED ── Unplugging
//! ```
//!
//! QEMU frees the memory's block only when its last thread has let go of the map of memory before,
//! some time after `object-del`. A guest that moves meanwhile moves with a block that comes and goes:
//! its new QEMU refuses it, or runs it on wrong memory. So a part is absent when the block is.
//!
//! A device's id is `yasmin-NUMBER-SLOT`, its memory's the same with `-memory`, or `-rom` where the guest may
//! only read it: so what an earlier broker left is known by its names.

use super::config::Monitor;
use super::qmp::Heard;
use super::region::let_open;
use super::segment::Segment;
use super::{FAILED_FOR, FromHost, Host, Shared};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use yasmin_control::segment::Rights;

/// How often QEMU is asked whether it has freed a block.
pub const FREED_WITHIN: Duration = Duration::from_millis(20);

/// A guest whose system is just starting does not hear that a device is to go: it is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A region in one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Until QEMU says what it has.
    Unknown,
    Absent,
    Making {
        slot: String,
    },
    Plugging {
        slot: String,
    },
    Plugged {
        slot: String,
    },
    Unplugging {
        slot: String,
    },
    Removing {
        slot: String,
    },
    Freeing {
        slot: String,
        is_asked: bool,
        /// When to ask again.
        after: Option<Instant>,
    },
}

impl Part {
    pub const fn is_freeing(&self) -> bool {
        matches!(self, Self::Freeing { .. })
    }

    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    fn slot(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Absent => None,
            Self::Making { slot }
            | Self::Plugging { slot }
            | Self::Plugged { slot }
            | Self::Unplugging { slot }
            | Self::Removing { slot }
            | Self::Freeing { slot, .. } => Some(slot),
        }
    }
}

/// A region in one guest, and what is known of that.
pub struct Plug {
    pub guest: usize,
    pub part: Part,
    /// The guest's broker has told of it, and of what is held there.
    pub is_told: bool,
    /// When a device that is asked to go is asked again, or one that was refused to come.
    again_at: Option<Instant>,
}

impl Plug {
    pub const fn new(guest: usize, part: Part) -> Self {
        Self { guest, part, is_told: false, again_at: None }
    }

    pub const fn is_plugged(&self) -> bool {
        matches!(self.part, Part::Plugged { .. })
    }

    pub const fn is_ready(&self) -> bool {
        self.is_plugged() && self.is_told
    }
}

/// Where a plug is: a pair's region, or a segment, and the number of the guest in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    Pair { at: usize, side: usize },
    Segment { at: usize, domain: usize },
}

/// What is to be in a guest.
struct Wish {
    number: u64,
    path: PathBuf,
    bytes: u64,
    is_read_only: bool,
    is_wanted: bool,
}

/// What QEMU was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    ListDevices,
    ListMemory,
    Make(u64),
    Plug(u64),
    Unplug(u64),
    Remove(u64),
    ListBlocks(u64),
    /// Of no region that there is.
    Clean,
}

fn device_id(region: u64, slot: &str) -> String {
    format!("yasmin-{region:016x}-{slot}")
}

/// Whether guests may write it shows in its name: so a broker that starts again knows it.
fn memory_id(region: u64, slot: &str, is_read_only: bool) -> String {
    let kind = if is_read_only { "rom" } else { "memory" };
    format!("{}-{kind}", device_id(region, slot))
}

/// The memory's id without its end, and whether it may only be read.
pub(super) fn parse_memory(id: &str) -> Option<(&str, bool)> {
    let writable = id.strip_suffix("-memory").map(|id| (id, false));
    writable.or_else(|| id.strip_suffix("-rom").map(|id| (id, true)))
}

/// Region and slot of a device of ours.
pub(super) fn parse_id(id: &str) -> Option<(u64, &str)> {
    let (number, slot) = id.strip_prefix("yasmin-")?.split_once('-')?;
    Some((u64::from_str_radix(number, 16).ok()?, slot))
}

/// The names in what qom-list gives.
fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten();
    names.filter_map(|item| item.get("name")?.as_str()).map(str::to_owned).collect()
}

impl Host {
    pub(super) fn has_slot(&self, guest: usize) -> bool {
        self.free_slot(guest).is_some()
    }

    fn free_slot(&self, guest: usize) -> Option<String> {
        let slots = &self.guests[guest].config.slots;
        let is_used = |slot: &String| {
            self.plugs().any(|plug| plug.guest == guest && plug.part.slot() == Some(slot.as_str()))
        };
        slots.iter().find(|slot| !is_used(slot)).cloned()
    }

    pub(super) fn plugs(&self) -> impl Iterator<Item = &Plug> {
        let of_pairs = self.shared.iter().flat_map(|shared| &shared.plugs);
        of_pairs.chain(self.segments.iter().flat_map(Segment::plugs))
    }

    pub(super) fn plug(&mut self, spot: Spot) -> &mut Plug {
        match spot {
            Spot::Pair { at, side } => &mut self.shared[at].plugs[side],
            Spot::Segment { at, domain } => &mut self.segments[at].seats[domain].plug,
        }
    }

    /// The id of the memory of what is plugged there.
    fn memory_of(&self, spot: Spot, slot: &str) -> String {
        match spot {
            Spot::Pair { at, .. } => memory_id(self.shared[at].region.number, slot, false),
            Spot::Segment { at, domain } => {
                let segment = &self.segments[at];
                memory_id(segment.number, slot, segment.seats[domain].is_read_only)
            }
        }
    }

    fn part(&mut self, spot: Spot) -> &mut Part {
        &mut self.plug(spot).part
    }

    fn wish(&self, spot: Spot) -> Wish {
        match spot {
            Spot::Pair { at, .. } => {
                let Shared { region, is_leaving, .. } = &self.shared[at];
                Wish {
                    number: region.number,
                    path: region.path.clone(),
                    bytes: region.way.bytes(),
                    is_read_only: false,
                    is_wanted: !is_leaving,
                }
            }
            Spot::Segment { at, domain } => {
                let segment = &self.segments[at];
                let seat = &segment.seats[domain];
                Wish {
                    number: segment.number,
                    path: segment.path.clone(),
                    bytes: segment.file_bytes(),
                    is_read_only: seat.rights() < Rights::Write,
                    is_wanted: self.has_seat(at, domain),
                }
            }
        }
    }

    fn ask(&mut self, guest: usize, purpose: Purpose, command: &str, arguments: &Value) {
        self.guests[guest].qmp.ask(purpose, command, arguments);
    }

    /// Brings a region's part in a guest on towards what is wanted of it.
    pub(super) fn move_plug(&mut self, spot: Spot, now: Instant) {
        let Wish { number, path, bytes, is_read_only, is_wanted } = self.wish(spot);
        let Plug { guest, part, again_at, .. } = self.plug(spot);
        let (guest, part, again_at) = (*guest, part.clone(), *again_at);
        let is_due = again_at.is_none_or(|at| now >= at);
        if !self.guests[guest].is_known {
            // Its QEMU is gone, or was never there, and the memory with it.
            if !is_wanted && !self.guests[guest].qmp.is_up() {
                *self.part(spot) = Part::Absent;
            }
            return;
        }
        match part {
            Part::Absent if is_wanted && is_due => {
                let Some(slot) = self.free_slot(guest) else { return };
                if let Some(qemu) = self.qemu_of(guest) {
                    let_open(&path, qemu);
                }
                let mut arguments = json!({
                    "qom-type": "memory-backend-file", "id": memory_id(number, &slot, is_read_only),
                    "mem-path": path, "size": bytes, "share": true,
                });
                if is_read_only {
                    arguments["readonly"] = true.into();
                }
                if let Spot::Segment { at, domain } = spot {
                    let seat = &mut self.segments[at].seats[domain];
                    (seat.is_read_only, seat.trouble) = (is_read_only, None);
                }
                self.ask(guest, Purpose::Make(number), "object-add", &arguments);
                *self.part(spot) = Part::Making { slot };
            }
            Part::Plugged { slot } if !is_wanted => {
                self.ask_to_go(spot, guest, number, slot, now);
            }
            Part::Unplugging { slot } if is_due => {
                self.ask_to_go(spot, guest, number, slot, now);
            }
            Part::Freeing { slot, is_asked: false, after }
                if after.is_none_or(|after| now >= after) =>
            {
                // The only way to learn it that every QEMU has, though its answer is text.
                let arguments = json!({ "command-line": "info ramblock" });
                let purpose = Purpose::ListBlocks(number);
                self.ask(guest, purpose, "human-monitor-command", &arguments);
                let after = Some(now + FREED_WITHIN);
                *self.part(spot) = Part::Freeing { slot, is_asked: true, after };
            }
            _ => {}
        }
    }

    fn ask_to_go(&mut self, spot: Spot, guest: usize, number: u64, slot: String, now: Instant) {
        let arguments = json!({ "id": device_id(number, &slot) });
        self.ask(guest, Purpose::Unplug(number), "device_del", &arguments);
        let plug = self.plug(spot);
        plug.part = Part::Unplugging { slot };
        plug.again_at = Some(now + AGAIN_AFTER);
    }

    /// What QEMU said. A region that cannot be plugged, and why.
    pub(super) fn plugging_heard(
        &mut self,
        guest: usize,
        heard: Heard<Purpose>,
        now: Instant,
    ) -> Option<(usize, String)> {
        match heard {
            Heard::Up => {
                self.qemu_came(guest);
                let path = json!({ "path": "/machine/peripheral" });
                self.ask(guest, Purpose::ListDevices, "qom-list", &path);
                None
            }
            Heard::Down => {
                self.guest_ended(guest);
                None
            }
            Heard::Deleted(device) => {
                self.deleted(guest, &device);
                None
            }
            Heard::Done(Purpose::ListDevices, list) => {
                self.found_devices(guest, &names(&list));
                let path = json!({ "path": "/objects" });
                self.ask(guest, Purpose::ListMemory, "qom-list", &path);
                None
            }
            Heard::Done(Purpose::ListMemory, list) => {
                self.found_memory(guest, &names(&list));
                self.guests[guest].is_known = true;
                None
            }
            Heard::Done(Purpose::Clean, _) | Heard::Refused(Purpose::Clean, _) => None,
            // Somebody else has unplugged it.
            Heard::Missing(Purpose::Unplug(number)) => {
                let spot = self.spot(guest, number);
                let slot = spot.and_then(|spot| self.part(spot).slot().map(str::to_owned));
                if let Some(slot) = slot {
                    self.deleted(guest, &device_id(number, &slot));
                }
                None
            }
            Heard::Missing(purpose) => {
                self.refused(guest, &purpose, "no such device".to_owned(), now)
            }
            Heard::Refused(Purpose::ListDevices | Purpose::ListMemory, why) => {
                let name = &self.guests[guest].config.name;
                tracing::warn!("guest {name}: its QEMU does not say what it has: {why}");
                None
            }
            Heard::Done(Purpose::ListBlocks(number), text) => {
                self.found_blocks(guest, number, text.as_str().unwrap_or_default());
                None
            }
            Heard::Done(purpose, _) => {
                self.went_on(guest, &purpose);
                None
            }
            Heard::Refused(purpose, why) => self.refused(guest, &purpose, why, now),
        }
    }

    fn spot(&self, guest: usize, number: u64) -> Option<Spot> {
        let pair = self.shared.iter().position(|shared| shared.region.number == number);
        if let Some(at) = pair {
            return Some(Spot::Pair { at, side: self.shared[at].side_of(guest)? });
        }
        let at = self.segments.iter().position(|segment| segment.number == number)?;
        Some(Spot::Segment { at, domain: self.segments[at].domain_of(guest)? })
    }

    fn went_on(&mut self, guest: usize, purpose: &Purpose) {
        let (Purpose::Make(number) | Purpose::Plug(number) | Purpose::Remove(number)) = purpose
        else {
            return;
        };
        let number = *number;
        let Some(spot) = self.spot(guest, number) else { return };
        let next = match (purpose, self.part(spot).clone()) {
            (Purpose::Make(_), Part::Making { slot }) => {
                let arguments = json!({
                    "driver": "ivshmem-plain", "id": device_id(number, &slot), "bus": slot,
                    "memdev": self.memory_of(spot, &slot), "master": true,
                });
                self.ask(guest, Purpose::Plug(number), "device_add", &arguments);
                Part::Plugging { slot }
            }
            (Purpose::Plug(_), Part::Plugging { slot }) => {
                *self.part(spot) = Part::Plugged { slot };
                return self.tell_of(spot);
            }
            (Purpose::Remove(_), Part::Removing { slot }) => {
                Part::Freeing { slot, is_asked: false, after: None }
            }
            (_, part) => part,
        };
        *self.part(spot) = next;
    }

    /// Tells a guest of memory that it has.
    pub(super) fn tell_of(&mut self, spot: Spot) {
        match spot {
            Spot::Pair { at, side } => {
                let Shared { region, plugs, .. } = &self.shared[at];
                let (guest, region) = (plugs[side].guest, region.number);
                self.tell(guest, FromHost::Plugged { region });
            }
            Spot::Segment { at, domain } => self.tell_of_segment(at, domain),
        }
    }

    /// Which blocks of memory QEMU has, by their names.
    fn found_blocks(&mut self, guest: usize, number: u64, text: &str) {
        let Some(spot) = self.spot(guest, number) else { return };
        let Some(slot) = self.part(spot).slot().map(str::to_owned) else { return };
        let memory = self.memory_of(spot, &slot);
        let part = self.part(spot);
        if let Part::Freeing { is_asked, .. } = part {
            if text.contains(&memory) {
                *is_asked = false;
            } else {
                *part = Part::Absent;
            }
        }
    }

    /// A pair's region that cannot be plugged, and why.
    fn refused(
        &mut self,
        guest: usize,
        purpose: &Purpose,
        why: String,
        now: Instant,
    ) -> Option<(usize, String)> {
        let (Purpose::Make(number)
        | Purpose::Plug(number)
        | Purpose::Unplug(number)
        | Purpose::ListBlocks(number)
        | Purpose::Remove(number)) = *purpose
        else {
            return None;
        };
        let spot = self.spot(guest, number)?;
        let name = &self.guests[guest].config.name;
        let (who, into) = match self.guests[guest].config.monitor {
            Monitor::Xen => (name.clone(), "take it: "),
            _ => (format!("QEMU of {name}"), "plug it into "),
        };
        let why = match (purpose, self.part(spot).clone()) {
            (Purpose::Make(_), _) => {
                *self.part(spot) = Part::Absent;
                format!("{who} does not take it: {why}")
            }
            (Purpose::Plug(_), Part::Plugging { slot }) => {
                let memory = json!({ "id": self.memory_of(spot, &slot) });
                self.ask(guest, Purpose::Remove(number), "object-del", &memory);
                *self.part(spot) = Part::Removing { slot };
                format!("{who} does not {into}{why}")
            }
            (Purpose::Unplug(_), Part::Unplugging { .. }) => {
                crate::rarely::warn!("{who} does not unplug memory yet: {why}");
                return None;
            }
            (Purpose::Remove(_), Part::Removing { .. }) => {
                crate::rarely::warn!("{who} keeps memory: {why}");
                *self.part(spot) = Part::Absent;
                return None;
            }
            (Purpose::ListBlocks(_), Part::Freeing { .. }) => {
                crate::rarely::warn!("{who} does not say when memory is free: {why}");
                *self.part(spot) = Part::Absent;
                return None;
            }
            _ => return None,
        };
        match spot {
            Spot::Pair { at, .. } => Some((at, why)),
            Spot::Segment { at, domain } => {
                self.plug(spot).again_at = Some(now + FAILED_FOR);
                self.segment_refused(at, domain, why);
                None
            }
        }
    }

    /// A guest has it no more, and nobody wanted that.
    fn lost(&mut self, spot: Spot) {
        match spot {
            Spot::Pair { at, side } => self.shared[at].lost_by(side),
            Spot::Segment { at, domain } => self.segments[at].seats[domain].lost(),
        }
    }

    /// A device has gone, because we asked or because somebody else did.
    fn deleted(&mut self, guest: usize, device: &str) {
        let Some((number, slot)) = parse_id(device) else { return };
        let Some(spot) = self.spot(guest, number) else {
            for is_read_only in [false, true] {
                let memory = json!({ "id": memory_id(number, slot, is_read_only) });
                self.ask(guest, Purpose::Clean, "object-del", &memory);
            }
            return;
        };
        let memory = json!({ "id": self.memory_of(spot, slot) });
        match self.part(spot) {
            Part::Removing { .. } | Part::Freeing { .. } => return,
            // Its memory could not go before it had.
            Part::Absent => return self.ask(guest, Purpose::Clean, "object-del", &memory),
            _ => {}
        }
        self.lost(spot);
        let plug = self.plug(spot);
        (plug.part, plug.again_at) = (Part::Removing { slot: slot.to_owned() }, None);
        self.ask(guest, Purpose::Remove(number), "object-del", &memory);
    }

    /// Where a guest has a plug.
    pub(super) fn spots_of(&self, guest: usize) -> Vec<Spot> {
        let of_pair =
            |(at, shared): (usize, &Shared)| Some(Spot::Pair { at, side: shared.side_of(guest)? });
        let of_segment = |(at, segment): (usize, &Segment)| {
            Some(Spot::Segment { at, domain: segment.domain_of(guest)? })
        };
        let pairs = self.shared.iter().enumerate().filter_map(of_pair);
        pairs.chain(self.segments.iter().enumerate().filter_map(of_segment)).collect()
    }

    /// A QEMU that ended took what it had with it.
    fn guest_ended(&mut self, guest: usize) {
        self.guests[guest].is_known = false;
        self.qemu_ended(guest);
        for spot in self.spots_of(guest) {
            self.lost(spot);
            *self.part(spot) = Part::Absent;
        }
    }

    fn found_devices(&mut self, guest: usize, devices: &[String]) {
        for spot in self.spots_of(guest) {
            *self.part(spot) = Part::Absent;
        }
        for device in devices {
            let Some((number, slot)) = parse_id(device) else { continue };
            match self.spot(guest, number) {
                Some(spot) => {
                    *self.part(spot) = Part::Plugged { slot: slot.to_owned() };
                    if matches!(spot, Spot::Segment { .. }) {
                        self.tell_of(spot);
                    }
                }
                None => self.ask(guest, Purpose::Clean, "device_del", &json!({ "id": device })),
            }
        }
        for spot in self.spots_of(guest) {
            if matches!(spot, Spot::Segment { .. }) && self.plug(spot).part.is_absent() {
                self.lost(spot);
            }
        }
        // What one guest has lost is not plugged again behind the other one's back.
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(guest)
                && shared.plugs[side].part.is_absent()
            {
                shared.lost_by(side);
            }
        }
    }

    /// Memory whose device is not there.
    fn found_memory(&mut self, guest: usize, objects: &[String]) {
        for object in objects {
            let Some((id, is_read_only)) = parse_memory(object) else { continue };
            let Some((number, slot)) = parse_id(id) else { continue };
            let spot = self.spot(guest, number);
            let spot = spot.filter(|&spot| self.part(spot).slot() == Some(slot));
            if let Some(Spot::Segment { at, domain }) = spot {
                self.segments[at].seats[domain].is_read_only = is_read_only;
            }
            if spot.is_none() {
                self.ask(guest, Purpose::Clean, "object-del", &json!({ "id": object }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        assert_eq!(parse_id(&device_id(7, "slot.1")), Some((7, "slot.1")));
        assert_eq!(parse_id("net0"), None);
        assert_eq!(names(&json!([{ "name": "a" }, 3, { "x": 1 }, { "name": "b" }])), ["a", "b"]);
    }
}
