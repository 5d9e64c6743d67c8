//! Segments as a table, and one of them with all there is to know.

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{BinaryBytes, HumanDuration};
use nix::unistd::{Uid, User};
use std::fmt::Write as _;
use std::time::Duration;
use yasmin_segment::status::{Grant, Segment};

const HEADINGS: [&str; 6] = ["NAME", "OWNER", "RIGHTS", "SIZE", "USED", "ADDRESS"];

/// Nothing when there are none.
pub fn list(segments: &[Segment], colour: bool) -> String {
    if segments.is_empty() {
        return String::new();
    }
    let mut table = plain(colour);
    table.set_header(HEADINGS.map(heading));
    for segment in segments {
        table.add_row([
            Cell::new(&segment.name),
            Cell::new(owner(segment)),
            Cell::new(rights(&segment.rights)),
            Cell::new(BinaryBytes(segment.size_bytes)),
            Cell::new(BinaryBytes(segment.used_bytes)),
            Cell::new(format!("{:#x}", segment.address)),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn owner(segment: &Segment) -> String {
    if segment.of_host { "the host".to_owned() } else { user(segment.owner) }
}

pub fn one(segment: &Segment, colour: bool) -> String {
    let mut text = format!(
        "{}: {} at {:#x}{}, of {}, made {} ago\n",
        segment.name,
        BinaryBytes(segment.size_bytes),
        segment.address,
        if segment.huge { " in huge pages" } else { "" },
        owner(segment),
        HumanDuration(Duration::from_secs(segment.age_s)),
    );
    let _ = writeln!(text, "takes {}", BinaryBytes(segment.used_bytes));
    let _ = writeln!(text, "rights of others: {}", rights(&segment.rights));
    if let Some(pid) = segment.creator {
        let _ = writeln!(text, "ends with process {pid}");
    }
    if !segment.attached {
        text.push_str("nobody has it\n");
        return text;
    }
    let mut table = plain(colour);
    table.set_header(["PID", "USER", "RIGHTS"].map(heading));
    for holder in &segment.holders {
        let pid = if holder.pid == 0 { "not seen".to_owned() } else { holder.pid.to_string() };
        let name = user(holder.user);
        table.add_row([Cell::new(pid), Cell::new(name), Cell::new(&holder.rights)]);
    }
    text.push_str(&table.trim_fmt());
    if segment.more_holders {
        text.push_str("\nand more");
    }
    text
}

fn plain(colour: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

fn heading(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Bold)
}

fn rights(grants: &[Grant]) -> String {
    let shown = grants.iter().map(|grant| {
        let whom = grant.user.map_or_else(|| "everyone".to_owned(), user);
        format!("{whom}:{}", grant.rights)
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(" ") }
}

/// By name where he has one.
fn user(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yasmin_segment::status::Holder;

    fn segment() -> Segment {
        Segment {
            name: "table".into(),
            owner: 0,
            of_host: false,
            size_bytes: 3 << 30,
            address: 0x2000_0000_1000,
            used_bytes: 4096,
            huge: false,
            creator: None,
            age_s: 60,
            rights: vec![
                Grant { user: None, rights: "read".into() },
                Grant { user: Some(4_000_000_000), rights: "write".into() },
            ],
            attached: true,
            holders: vec![Holder { pid: 0, user: 0, rights: "write".into() }],
            more_holders: true,
        }
    }

    #[test]
    fn a_row_for_each_segment() {
        let text = list(&[segment(), segment()], false);
        assert_eq!(text.lines().count(), 3, "{text}");
        for word in ["table", "root", "everyone:read", "4000000000:write", "3.00 GiB", "0x2000"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert!(!text.contains('\x1b') && list(&[segment()], true).contains('\x1b'));
        assert_eq!(list(&[], true), "");
    }

    #[test]
    fn one_with_who_has_it() {
        let text = one(&segment(), false);
        for word in ["3.00 GiB at 0x200000001000, of root", "not seen", "and more"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let free = Segment { attached: false, creator: Some(7), ..segment() };
        let text = one(&free, false);
        assert!(text.contains("nobody has it") && text.contains("process 7"), "{text}");
    }
}
