//! `yasmin host segment`: segments that guests of this host share.

use super::cli::{Grant, SegmentVerb};
use super::{ask, done, place, status, table};
use crate::status::write_line;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use yasmin_control::host::{Ask, Right, SegmentAsk, SegmentGuest, SegmentStatus};

/// Guests have their memory within seconds, or something is in the way.
const READY_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The exit code.
pub fn carry_out(verb: &SegmentVerb) -> anyhow::Result<u8> {
    let out = &mut std::io::stdout();
    match verb {
        SegmentVerb::Create(options) => {
            let socket = place(&options.desk);
            let (name, size_bytes) = (options.name.clone(), options.size);
            say(&socket, SegmentAsk::Create { name, size_bytes, rights: rights(&options.allow) })?;
            return wait(&socket, &options.name, out);
        }
        SegmentVerb::Allow(options) => {
            let socket = place(&options.desk);
            let name = options.name.clone();
            say(&socket, SegmentAsk::Allow { name, rights: rights(&options.grants) })?;
            return wait(&socket, &options.name, out);
        }
        SegmentVerb::Rm(options) => {
            let socket = place(&options.desk);
            for name in &options.names {
                say(&socket, SegmentAsk::Remove { name: name.clone(), force: options.force })?;
            }
        }
        SegmentVerb::Ls(options) => {
            let segments = status(&place(&options.desk))?.segments;
            let text = if options.json {
                serde_json::to_string_pretty(&segments)?
            } else {
                table::segments(&segments, crate::status::colour())
            };
            if !text.is_empty() {
                write_line(out, &text)?;
            }
        }
    }
    Ok(0)
}

fn say(socket: &Path, question: SegmentAsk) -> anyhow::Result<()> {
    done(ask(socket, &Ask::Segment(question), Duration::ZERO)?)
}

fn rights(grants: &[Grant]) -> Vec<Right> {
    let right = |Grant { guest, user, rights }: &Grant| Right {
        guest: guest.clone(),
        user: *user,
        rights: rights.describe().to_owned(),
    };
    grants.iter().map(right).collect()
}

/// Until each guest has the segment, or is known not to get it. 1: one has it not.
fn wait(socket: &Path, name: &str, out: &mut impl Write) -> anyhow::Result<u8> {
    let until = Instant::now() + READY_WITHIN;
    let (segment, is_late) = loop {
        let all = status(socket)?.segments;
        let Some(segment) = all.into_iter().find(|one| one.name == name && !one.is_removed) else {
            return Ok(0);
        };
        let is_late = Instant::now() >= until;
        let moves = |guest: &SegmentGuest| matches!(&*guest.state, "coming" | "going");
        if is_late || !segment.guests.iter().any(moves) {
            break (segment, is_late);
        }
        sleep(LOOK_EVERY);
    };
    let SegmentStatus { address, guests, .. } = &segment;
    let has_it: Vec<_> =
        guests.iter().filter(|one| one.state == "ready").map(|one| one.guest.as_str()).collect();
    if has_it.is_empty() {
        write_line(out, &format!("{name}: at {address:#x}, no guest has it"))?;
    } else {
        write_line(out, &format!("{name}: at {address:#x} in {}", has_it.join(", ")))?;
    }
    let waits = guests.iter().filter(|one| matches!(&*one.state, "coming" | "going"));
    for SegmentGuest { guest, state, trouble, .. } in waits {
        match (trouble, &**state) {
            (Some(trouble), _) => {
                eprintln!("yasmin: guest {guest} does not have it yet: {trouble}")
            }
            (None, "going") => eprintln!(
                "yasmin: programs in guest {guest} have it still by other rights; it changes when they end"
            ),
            (None, _) => eprintln!("yasmin: guest {guest} does not have it yet"),
        }
    }
    Ok(is_late.into())
}
