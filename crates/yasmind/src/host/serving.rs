//! Memory for ends that wait, and why they get none.
//!
//! Ends wait while what they need may still come: a monitor that does not answer yet, a port from which
//! other memory is about to go. What cannot come is declined at once, and each reason is logged with what
//! to do about it.

use super::config::Monitor;
use super::pairs::{GuestEnd, Pending};
use super::plugging::{Part, Plug};
use super::region::{Region, Way};
use super::{FAILED_FOR, Failed, Host, PLUGGED_WITHIN, Shared, random};
use std::time::Instant;
use yasmin_control::Decline;
use yasmin_control::uplink::FromHost;

/// Why two ends get no channel.
enum Trouble {
    /// Not yet; after a while it is told to the host's administrator.
    Later(String),
    Never(Decline),
}

impl Host {
    pub(super) fn serve_pending(&mut self, now: Instant) {
        let mut later = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            match self.serve(&pending, now) {
                Ok(()) => {}
                Err(Trouble::Never(reason)) => self.decline_both(pending.ends, reason),
                Err(Trouble::Later(_)) if now < pending.since + PLUGGED_WITHIN => {
                    later.push(pending);
                }
                Err(Trouble::Later(why)) => {
                    let names = self.names_of(pending.guests());
                    crate::rarely::warn!(
                        "no memory for guests {names}, so connections stay on TCP: {why}"
                    );
                    self.give_up(pending.guests(), now);
                    self.decline_both(pending.ends, Decline::Memory);
                }
            }
        }
        later.append(&mut self.pending);
        self.pending = later;
    }

    /// A slice for two ends.
    fn serve(&mut self, pending: &Pending, now: Instant) -> Result<(), Trouble> {
        let guests = pending.guests();
        if self.left.has(guests) {
            return Err(Trouble::Never(Decline::Policy));
        }
        let found =
            self.shared.iter().position(|shared| !shared.is_leaving && shared.is_of(guests));
        let Some(at) = found else {
            self.make_region(guests, now)?;
            return Err(Trouble::Later("it does not come".to_owned()));
        };
        if !self.shared[at].is_ready() {
            return Err(Trouble::Later(self.what_is_missing(at)));
        }
        let taken = self.shared[at].region.take().map_err(|error| {
            crate::rarely::warn!("cannot prepare a slice: {error}");
            Trouble::Never(Decline::Memory)
        })?;
        let Some((offset, grant)) = taken else {
            crate::rarely::warn!(
                "guests {} have as many connections as their memory holds, {}: more stay on TCP; a \
                 smaller --host-class makes room for more",
                self.names_of(guests),
                self.shared[at].region.slices()
            );
            return Err(Trouble::Never(Decline::Memory));
        };
        let Region { number: region, class: max_class, .. } = self.shared[at].region;
        let first_class = self.first_class.min(max_class);
        for GuestEnd { guest, id } in pending.ends {
            let channel = FromHost::Channel { id, region, offset, grant, max_class, first_class };
            self.tell(guest, channel);
        }
        Ok(())
    }

    /// Why a region is not ready.
    fn what_is_missing(&self, at: usize) -> String {
        let shared = &self.shared[at];
        for plug in &shared.plugs {
            let name = self.name_of(plug.guest);
            if !plug.is_plugged() {
                return match self.guests[plug.guest].config.monitor {
                    Monitor::Xen => format!("{name} does not take it"),
                    _ => format!("QEMU of {name} has not plugged it; does it answer?"),
                };
            }
            if !plug.is_told {
                return format!(
                    "no word of it from guest {name}; is yasmin-region.ko loaded there, and does \
                     yasmind run?"
                );
            }
        }
        "it is not there yet".to_owned()
    }

    /// Memory for these guests does not come: what was begun and nobody uses goes.
    pub(super) fn give_up(&mut self, guests: [usize; 2], now: Instant) {
        for shared in self.shared.iter_mut().filter(|shared| shared.is_of(guests)) {
            if !shared.is_ready() && !shared.was_ready && !shared.is_leaving {
                shared.leave();
                self.failed.push(Failed { guests, until: now + FAILED_FOR });
            }
        }
    }

    fn make_region(&mut self, guests: [usize; 2], now: Instant) -> Result<(), Trouble> {
        if self.is_ending {
            return Err(Trouble::Never(Decline::Policy));
        }
        let names = self.names_of(guests);
        self.failed.retain(|failed| now < failed.until);
        let is_failed = |failed: &Failed| guests.iter().all(|guest| failed.guests.contains(guest));
        if let Some(failed) = self.failed.iter().find(|failed| is_failed(failed)) {
            let seconds = failed.until.saturating_duration_since(now).as_secs();
            crate::rarely::warn!(
                "guests {names} got no memory a moment ago (see above), so connections stay on TCP; \
                 it is tried again in {seconds} s"
            );
            return Err(Trouble::Never(Decline::Memory));
        }
        if let Some(rest) = self.losses.rest(guests, now) {
            crate::rarely::warn!(
                "guests {names} lose their memory again and again, so connections stay on TCP; they \
                 get it again in {} s",
                rest.as_secs() + 1
            );
            return Err(Trouble::Never(Decline::Memory));
        }
        if let Some(guest) = guests.map(|guest| &self.guests[guest]).iter().find(|g| !g.is_known) {
            return Err(Trouble::Later(format!(
                "QEMU of {} does not answer {}; is it there, and is nobody else connected?",
                guest.config.name, guest.config.monitor
            )));
        }
        // What is about to go makes room.
        let is_going = |of: &dyn Fn(&Shared) -> bool| {
            self.shared.iter().any(|shared| shared.is_leaving && of(shared))
        };
        let of = |guest: usize| {
            let of_guest = self.shared.iter().filter(|shared| shared.side_of(guest).is_some());
            of_guest.map(Shared::bytes).sum::<u64>()
        };
        let is_xen = guests.iter().any(|&guest| self.guests[guest].config.monitor == Monitor::Xen);
        let way = if is_xen { Way::Granted } else { Way::Plugged };
        let full = guests.into_iter().find(|&guest| of(guest) + way.bytes() > self.guest_limit);
        let is_full = self.given_bytes() + way.bytes() > self.memory_limit;
        if is_full || full.is_some() {
            let why = match full.filter(|_| !is_full) {
                Some(guest) => format!(
                    "guest {} has all the memory of one guest; --user-limit is {} MiB",
                    self.name_of(guest),
                    self.guest_limit >> 20
                ),
                None => format!("all is given; --memory-limit is {} MiB", self.memory_limit >> 20),
            };
            let frees = is_going(&|shared| {
                full.is_none_or(|guest| is_full || shared.side_of(guest).is_some())
            });
            return Err(self.no_room(frees, &names, why));
        }
        if let Some(guest) = guests.into_iter().find(|&guest| !self.has_slot(guest)) {
            for guest in guests {
                self.make_room(guest);
            }
            let frees = self.shared.iter().any(|s| s.is_leaving && s.side_of(guest).is_some());
            let why = match self.guests[guest].config.monitor {
                Monitor::Xen => "as many others as there are at most have some with it",
                _ => "no port is empty; give it another pcie-root-port and name that in slots=",
            };
            let why = format!("guest {}: {why}", self.name_of(guest));
            return Err(self.no_room(frees, &names, why));
        }
        let owners = guests.map(|guest| self.name_of(guest).to_owned());
        let region = Region::create(&self.folder, way, random(), self.class, owners, random());
        let region = region.map_err(|error| {
            crate::rarely::warn!(
                "cannot make memory for guests {names} in {}: {error}; their connections stay on TCP",
                self.folder.display()
            );
            Trouble::Never(Decline::Memory)
        })?;
        let plugs = guests.map(|guest| Plug::new(guest, Part::Absent));
        self.shared.push(Shared::new(region, plugs));
        Ok(())
    }

    fn no_room(&self, frees: bool, names: &str, why: String) -> Trouble {
        if frees {
            return Trouble::Later(why);
        }
        crate::rarely::warn!("no memory for guests {names}, so connections stay on TCP: {why}");
        Trouble::Never(Decline::Memory)
    }

    /// No slot is empty: the memory that nobody uses goes, for the next one who asks.
    pub(super) fn make_room(&mut self, guest: usize) {
        let is_coming = self.shared.iter().any(|s| s.is_leaving && s.side_of(guest).is_some());
        if is_coming || self.has_slot(guest) {
            return;
        }
        let of_guest = self.shared.iter_mut().filter(|shared| shared.side_of(guest).is_some());
        let idle = of_guest.filter(|shared| shared.idle_since.is_some());
        if let Some(shared) = idle.min_by_key(|shared| shared.idle_since) {
            shared.leave();
        }
    }
}
