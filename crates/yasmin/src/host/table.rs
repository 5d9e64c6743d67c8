//! Guests, and who shares memory with whom, for people.

use crate::status::{heading, plain_table};
use comfy_table::{Cell, CellAlignment};
use indicatif::BinaryBytes;
use yasmin_control::host::{Guest, HostStatus, Right, SegmentGuest, SegmentStatus};

pub fn draw(status: &HostStatus, colour: bool) -> String {
    let mut guests = plain_table(colour);
    guests.set_header(["GUEST", "STATE", "MEMORY"].map(heading));
    for guest in &status.guests {
        guests.add_row([
            Cell::new(&guest.name),
            Cell::new(state(guest)),
            Cell::new(BinaryBytes(guest.memory_bytes)),
        ]);
    }
    let mut parts = vec![
        format!(
            "yasmind --host {} (pid {}), {} of {} given, {} for one guest at most",
            status.version,
            status.pid,
            BinaryBytes(status.memory_used_bytes),
            BinaryBytes(status.memory_limit_bytes),
            BinaryBytes(status.guest_limit_bytes),
        ),
        guests.trim_fmt(),
    ];
    if !status.regions.is_empty() {
        let mut regions = plain_table(colour);
        regions.set_header(["SHARED BY", "STATE", "MEMORY", "IN USE", "REGION"].map(heading));
        for region in &status.regions {
            regions.add_row([
                Cell::new(region.guests.join(" and ")),
                Cell::new(&region.state),
                Cell::new(BinaryBytes(region.memory_bytes)),
                Cell::new(format!("{} of {}", region.held, region.slices)),
                Cell::new(&region.region),
            ]);
        }
        parts.push(regions.trim_fmt());
    }
    if !status.segments.is_empty() {
        parts.push(segments(&status.segments, colour));
    }
    parts.extend(
        status.pairs_left.iter().map(|pair| format!("{} have left each other", pair.join(" and "))),
    );
    parts.join("\n")
}

/// Nothing when there are none.
pub fn segments(all: &[SegmentStatus], colour: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = plain_table(colour);
    table.set_header(
        ["SEGMENT", "SIZE", "USED", "ADDRESS", "GUEST", "RIGHTS", "STATE"].map(heading),
    );
    for segment in all {
        let mut first = [
            segment.name.clone(),
            BinaryBytes(segment.size_bytes).to_string(),
            BinaryBytes(segment.used_bytes).to_string(),
            format!("{:#x}", segment.address),
        ];
        if segment.guests.is_empty() {
            table.add_row(first.clone());
        }
        for guest in &segment.guests {
            let rest = [guest.guest.clone(), rights(guest), guest_state(segment, guest)];
            table.add_row(first.iter().chain(&rest));
            first = Default::default();
        }
    }
    for column in table.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn rights(guest: &SegmentGuest) -> String {
    let one = |right: &Right| match right.user {
        None => right.rights.clone(),
        Some(uid) => format!("{uid}:{}", right.rights),
    };
    if guest.rights.is_empty() {
        return "none".to_owned();
    }
    guest.rights.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn guest_state(segment: &SegmentStatus, guest: &SegmentGuest) -> String {
    let state = match segment.is_removed {
        true => format!("{}, removed", guest.state),
        false => guest.state.clone(),
    };
    match &guest.trouble {
        Some(trouble) => format!("{state}: {trouble}"),
        None => state,
    }
}

fn state(guest: &Guest) -> &'static str {
    match guest {
        Guest { has_left: true, .. } => "has left",
        Guest { has_qemu: false, .. } => "no QEMU answers",
        Guest { has_broker: false, .. } => "no broker in it",
        _ => "served",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yasmin_control::host::Region;

    #[test]
    fn all_is_shown() {
        let guest = |name: &str, has_left| Guest {
            name: name.to_owned(),
            has_qemu: true,
            has_broker: true,
            has_left,
            memory_bytes: 64 << 20,
        };
        let pair = ["web".to_owned(), "db".to_owned()];
        let status = HostStatus {
            version: "1".to_owned(),
            pid: 7,
            memory_used_bytes: 64 << 20,
            memory_limit_bytes: 1 << 30,
            guest_limit_bytes: 1 << 29,
            guests: vec![guest("web", false), guest("db", true)],
            pairs_left: vec![pair.clone()],
            regions: vec![Region {
                region: "00ff".to_owned(),
                guests: pair,
                state: "ready".to_owned(),
                memory_bytes: 64 << 20,
                slices: 63,
                held: 2,
            }],
            segments: vec![SegmentStatus {
                name: "table".to_owned(),
                size_bytes: 1 << 20,
                address: 0x2e00_0000_1000,
                memory_bytes: 2 << 20,
                used_bytes: 8192,
                is_removed: false,
                guests: vec![SegmentGuest {
                    guest: "db".to_owned(),
                    state: "coming".to_owned(),
                    rights: [(None, "read"), (Some(7), "write")]
                        .map(|(user, rights)| Right {
                            guest: "db".to_owned(),
                            user,
                            rights: rights.to_owned(),
                        })
                        .into(),
                    rings: 0,
                    trouble: Some("no port".to_owned()),
                }],
            }],
        };
        let text = draw(&status, false);
        for wanted in [
            "web",
            "has left",
            "web and db",
            "2 of 63",
            "00ff",
            "left each other",
            "0x2e0000001000",
            "read 7:write",
            "coming: no port",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
