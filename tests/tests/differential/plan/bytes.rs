//! Bytes that are sent and received.

use super::{Plan, Side, Target, index};

impl Plan<'_> {
    pub(super) fn moved(&mut self, target: &Target, result: &str, sends: bool) {
        if let Ok(len) = result.parse::<u64>() {
            let side = self.side(target);
            if sends {
                side.sent += len;
            } else {
                side.received += len;
            }
        }
    }

    /// Whether TCP's first window has room for so many more bytes: they arrive at once.
    pub(super) fn has_room(&mut self, target: &Target, len: usize) -> bool {
        let other = &self.sides[target.conn][index(target.end.other())];
        let received = other.received;
        let side = self.side(target);
        side.sent + len as u64 - received.min(side.sent) < 60_000
    }

    pub(super) fn send(
        &mut self,
        target: &Target,
        len: usize,
        form: &str,
        flags: &str,
    ) -> Result<(), String> {
        if !self.has_room(target, len) {
            return Ok(());
        }
        // Where a send that does not sleep is cut is the ring's or TCP's own affair.
        let may_be_cut = self.side(target).nonblocking || flags == "dontwait";
        if may_be_cut && form == "fwrite" {
            return Ok(());
        }
        let verb = if may_be_cut { "whole" } else { "send" };
        let result = self.on(target, &format!("{verb} {len} {flags} {form}"))?;
        self.moved(target, &result, true);
        Ok(())
    }

    /// The other end sends, and it arrives.
    pub(super) fn peer_sends(&mut self, target: &Target, len: usize) -> Result<(), String> {
        let Some(peer) = self.any(target.conn, target.end.other()) else { return Ok(()) };
        self.send(&peer, len, "send", "nosignal")?;
        self.settle(target.conn, false)
    }

    /// A cork or MSG_MORE may hold bytes back, or not: looked at only when it is over.
    pub(super) fn send_more(
        &mut self,
        target: &Target,
        len: usize,
        corked: bool,
    ) -> Result<(), String> {
        if !self.has_room(target, 2 * len + 2) {
            return Ok(());
        }
        if corked {
            self.on(target, "set cork 1")?;
        }
        let flags = if corked { "nosignal" } else { "nosignal+more" };
        let result = self.on(target, &format!("whole {} {flags} send", len + 1))?;
        self.moved(target, &result, true);
        let result = self.on(target, &format!("whole {} nosignal send", len + 1))?;
        self.moved(target, &result, true);
        if corked {
            self.on(target, "set cork 0")?;
        }
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        target: &Target,
        len: usize,
        form: &str,
        flags: &str,
    ) -> Result<(), String> {
        let has_input = self.has_input(target)?;
        let unread = self.unread(target)?;
        let side = self.side(target).clone();
        let has_flags = form.starts_with("recv");
        // A peek further on finds nothing where bytes are.
        let is_blind = side.peeks_on && flags.contains("peek");
        let mut flags = if has_flags { flags.to_owned() } else { "-".to_owned() };
        let wants_all = flags.contains("waitall") || form == "streamread";
        let waits_for_all = wants_all && unread < len as u64;
        let may_sleep = !side.nonblocking && !side.receive_timeout;
        if may_sleep && !flags.contains("dontwait") && (!has_input || waits_for_all || is_blind) {
            if !has_flags {
                return Ok(());
            }
            flags = format!("{flags}+dontwait");
        }
        let peeks = flags.contains("peek");
        let result = self.on(target, &format!("recv {len} {flags} {form}"))?;
        if !peeks {
            self.moved(target, &result, false);
        }
        Ok(())
    }

    pub(super) fn bulk(&mut self, target: &Target, len: usize) -> Result<(), String> {
        let Some(peer) = self.any(target.conn, target.end.other()) else { return Ok(()) };
        let (events, peer_events) = (self.events(target)?, self.events(&peer)?);
        let [a, b] = &self.sides[target.conn];
        let is_plain = |side: &Side| {
            !side.nonblocking && !side.receive_timeout && !side.is_odd && !side.has_ended_writing
        };
        let over = |events: &str| events.contains("hup") || events.contains("err");
        let child = !target.prefix.is_empty() || !peer.prefix.is_empty();
        if !is_plain(a) || !is_plain(b) || over(&events) || over(&peer_events) || child {
            return Ok(());
        }
        let unread = self.unread(&peer)?;
        self.does(target.end, format!("async T sendall {} {len}", target.name))?;
        self.does(peer.end, format!("recvall {} {}", peer.name, len as u64 + unread))?;
        self.does(target.end, "join T".to_owned())?;
        self.side(target).sent += len as u64;
        self.side(&peer).received += len as u64 + unread;
        Ok(())
    }

    pub(super) fn bad_memory(
        &mut self,
        target: &Target,
        form: &str,
        kind: &str,
        len: usize,
    ) -> Result<(), String> {
        let receives = form.starts_with("re");
        if !receives || self.has_input(target)? && !self.side(target).is_odd {
            let flags = if receives || form.contains('w') { "" } else { " nosignal" };
            self.on(target, &format!("vec {form} {kind}{len}{flags}"))?;
        }
        Ok(())
    }

    /// Not a second urgent byte while bytes before the first one are unread: if they lie in the
    /// ring, the kernel drops the first one, as docs/architecture.md says.
    pub(super) fn urgent(
        &mut self,
        target: &Target,
        before: usize,
        after: usize,
    ) -> Result<(), String> {
        let other = index(target.end.other());
        for side in &mut self.sides[target.conn] {
            side.is_odd = true;
        }
        if self.side(target).has_ended_writing || self.sides[target.conn][other].is_before_mark {
            return Ok(());
        }
        if before > 0 {
            self.send(target, before, "send", "nosignal")?;
        }
        if let Some(peer) = self.any(target.conn, target.end.other()) {
            let is_before_mark = before > 0 || self.unread(&peer)? > 0;
            self.sides[target.conn][other].is_before_mark = is_before_mark;
        }
        self.on(target, "urgent")?;
        if after > 0 { self.send(target, after, "send", "nosignal") } else { Ok(()) }
    }
}
