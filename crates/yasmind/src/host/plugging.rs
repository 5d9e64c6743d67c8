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
//! A device's id is `yasmin-NUMBER-SLOT`, its memory's the same with `-memory`: so what an earlier
//! broker left is known by its names.

use super::qmp::Heard;
use super::region::REGION_BYTES;
use super::{FromHost, Host};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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

fn memory_id(region: u64, slot: &str) -> String {
    format!("{}-memory", device_id(region, slot))
}

/// Region and slot of a device of ours.
fn parse_id(id: &str) -> Option<(u64, &str)> {
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
            self.shared.iter().any(|shared| {
                shared
                    .side_of(guest)
                    .is_some_and(|side| shared.parts[side].slot() == Some(slot.as_str()))
            })
        };
        slots.iter().find(|slot| !is_used(slot)).cloned()
    }

    fn ask(&mut self, guest: usize, purpose: Purpose, command: &str, arguments: &Value) {
        self.guests[guest].qmp.ask(purpose, command, arguments);
    }

    /// Brings the region's parts on towards what is wanted of it.
    pub(super) fn move_parts(&mut self, at: usize, now: Instant) {
        for side in 0..2 {
            let shared = &self.shared[at];
            let (guest, number) = (shared.guests[side], shared.region.number);
            if !self.guests[guest].is_known {
                // Its QEMU is gone, or was never there, and the memory with it.
                if shared.is_leaving && !self.guests[guest].qmp.is_up() {
                    self.shared[at].parts[side] = Part::Absent;
                }
                continue;
            }
            let path = shared.region.path.clone();
            match shared.parts[side].clone() {
                Part::Absent if !shared.is_leaving => {
                    let Some(slot) = self.free_slot(guest) else { continue };
                    let arguments = json!({
                        "qom-type": "memory-backend-file", "id": memory_id(number, &slot),
                        "mem-path": path, "size": REGION_BYTES, "share": true,
                    });
                    self.ask(guest, Purpose::Make(number), "object-add", &arguments);
                    self.shared[at].parts[side] = Part::Making { slot };
                }
                Part::Plugged { slot } if shared.is_leaving => {
                    let arguments = json!({ "id": device_id(number, &slot) });
                    self.ask(guest, Purpose::Unplug(number), "device_del", &arguments);
                    self.shared[at].parts[side] = Part::Unplugging { slot };
                    self.shared[at].again_at[side] = now + AGAIN_AFTER;
                }
                Part::Unplugging { slot } if now >= shared.again_at[side] => {
                    let arguments = json!({ "id": device_id(number, &slot) });
                    self.ask(guest, Purpose::Unplug(number), "device_del", &arguments);
                    self.shared[at].again_at[side] = now + AGAIN_AFTER;
                }
                Part::Freeing { slot, is_asked: false, after }
                    if after.is_none_or(|after| now >= after) =>
                {
                    // The only way to learn it that every QEMU has, though its answer is text.
                    let arguments = json!({ "command-line": "info ramblock" });
                    let purpose = Purpose::ListBlocks(number);
                    self.ask(guest, purpose, "human-monitor-command", &arguments);
                    let after = Some(now + FREED_WITHIN);
                    self.shared[at].parts[side] = Part::Freeing { slot, is_asked: true, after };
                }
                _ => {}
            }
        }
    }

    /// What QEMU said. A region that cannot be plugged, and why.
    pub(super) fn plugging_heard(
        &mut self,
        guest: usize,
        heard: Heard<Purpose>,
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
                let slot = self
                    .place(guest, number)
                    .and_then(|(at, side)| self.shared[at].parts[side].slot().map(str::to_owned));
                if let Some(slot) = slot {
                    self.deleted(guest, &device_id(number, &slot));
                }
                None
            }
            Heard::Missing(purpose) => self.refused(guest, &purpose, "no such device".to_owned()),
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
            Heard::Refused(purpose, why) => self.refused(guest, &purpose, why),
        }
    }

    fn place(&self, guest: usize, number: u64) -> Option<(usize, usize)> {
        let at = self.shared.iter().position(|shared| shared.region.number == number)?;
        Some((at, self.shared[at].side_of(guest)?))
    }

    fn went_on(&mut self, guest: usize, purpose: &Purpose) {
        let (Purpose::Make(number) | Purpose::Plug(number) | Purpose::Remove(number)) = purpose
        else {
            return;
        };
        let number = *number;
        let Some((at, side)) = self.place(guest, number) else { return };
        let next = match (purpose, self.shared[at].parts[side].clone()) {
            (Purpose::Make(_), Part::Making { slot }) => {
                let arguments = json!({
                    "driver": "ivshmem-plain", "id": device_id(number, &slot), "bus": slot,
                    "memdev": memory_id(number, &slot), "master": true,
                });
                self.ask(guest, Purpose::Plug(number), "device_add", &arguments);
                Part::Plugging { slot }
            }
            (Purpose::Plug(_), Part::Plugging { slot }) => {
                self.tell(guest, FromHost::Plugged { region: number });
                Part::Plugged { slot }
            }
            (Purpose::Remove(_), Part::Removing { slot }) => {
                Part::Freeing { slot, is_asked: false, after: None }
            }
            (_, part) => part,
        };
        self.shared[at].parts[side] = next;
    }

    /// Which blocks of memory QEMU has, by their names.
    fn found_blocks(&mut self, guest: usize, number: u64, text: &str) {
        let Some((at, side)) = self.place(guest, number) else { return };
        let part = &mut self.shared[at].parts[side];
        if let Part::Freeing { slot, is_asked, .. } = part {
            if text.contains(&memory_id(number, slot)) {
                *is_asked = false;
            } else {
                *part = Part::Absent;
            }
        }
    }

    fn refused(&mut self, guest: usize, purpose: &Purpose, why: String) -> Option<(usize, String)> {
        let (Purpose::Make(number)
        | Purpose::Plug(number)
        | Purpose::Unplug(number)
        | Purpose::ListBlocks(number)
        | Purpose::Remove(number)) = *purpose
        else {
            return None;
        };
        let (at, side) = self.place(guest, number)?;
        let name = self.guests[guest].config.name.clone();
        match (purpose, self.shared[at].parts[side].clone()) {
            (Purpose::Make(_), _) => {
                self.shared[at].parts[side] = Part::Absent;
                Some((at, format!("QEMU of {name} does not take it: {why}")))
            }
            (Purpose::Plug(_), Part::Plugging { slot }) => {
                let memory = json!({ "id": memory_id(number, &slot) });
                self.ask(guest, Purpose::Remove(number), "object-del", &memory);
                self.shared[at].parts[side] = Part::Removing { slot };
                Some((at, format!("QEMU of {name} does not plug it into {why}")))
            }
            (Purpose::Unplug(_), Part::Unplugging { .. }) => {
                crate::rarely::warn!("QEMU of {name} does not unplug memory yet: {why}");
                None
            }
            (Purpose::Remove(_), Part::Removing { .. }) => {
                crate::rarely::warn!("QEMU of {name} keeps memory: {why}");
                self.shared[at].parts[side] = Part::Absent;
                None
            }
            (Purpose::ListBlocks(_), Part::Freeing { .. }) => {
                crate::rarely::warn!("QEMU of {name} does not say when memory is free: {why}");
                self.shared[at].parts[side] = Part::Absent;
                None
            }
            _ => None,
        }
    }

    /// A device has gone, because we asked or because somebody else did.
    fn deleted(&mut self, guest: usize, device: &str) {
        let Some((number, slot)) = parse_id(device) else { return };
        let memory = json!({ "id": memory_id(number, slot) });
        let Some((at, side)) = self.place(guest, number) else {
            return self.ask(guest, Purpose::Clean, "object-del", &memory);
        };
        let shared = &mut self.shared[at];
        match shared.parts[side] {
            Part::Removing { .. } | Part::Freeing { .. } => return,
            // Its memory could not go before it had.
            Part::Absent => return self.ask(guest, Purpose::Clean, "object-del", &memory),
            _ => {}
        }
        shared.lost_by(side);
        shared.parts[side] = Part::Removing { slot: slot.to_owned() };
        self.ask(guest, Purpose::Remove(number), "object-del", &memory);
    }

    /// A QEMU that ended took what it had with it.
    fn guest_ended(&mut self, guest: usize) {
        self.guests[guest].is_known = false;
        self.qemu_ended(guest);
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(guest) {
                shared.lost_by(side);
                shared.parts[side] = Part::Absent;
            }
        }
    }

    fn found_devices(&mut self, guest: usize, devices: &[String]) {
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(guest) {
                shared.parts[side] = Part::Absent;
            }
        }
        for device in devices {
            let Some((number, slot)) = parse_id(device) else { continue };
            match self.place(guest, number) {
                Some((at, side)) => {
                    self.shared[at].parts[side] = Part::Plugged { slot: slot.to_owned() };
                }
                None => self.ask(guest, Purpose::Clean, "device_del", &json!({ "id": device })),
            }
        }
        // What one guest has lost is not plugged again behind the other one's back.
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(guest)
                && shared.parts[side].is_absent()
            {
                shared.lost_by(side);
            }
        }
    }

    /// Memory whose device is not there.
    fn found_memory(&mut self, guest: usize, objects: &[String]) {
        for object in objects {
            let Some((number, slot)) = object.strip_suffix("-memory").and_then(parse_id) else {
                continue;
            };
            let part = self.place(guest, number).map(|(at, side)| &self.shared[at].parts[side]);
            if part.is_none_or(|part| part.slot() != Some(slot)) {
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
