//! Handlers, and waits under a mask.

use std::io::Result;
use std::sync::Arc;

use yasmin_tests::sys::interrupts::{self, Mask};
use yasmin_tests::sys::libc::SIGUSR1;
use yasmin_tests::sys::{kill_thread, thread_id};

use crate::wait::{event_list, event_names, events_of};
use crate::{Script, execute, number, ok, wrong};

fn mask_of(text: &str) -> Result<Mask> {
    match text {
        "nomask" => Ok(Mask::NONE),
        "open" => Ok(Mask::blocking(&[])),
        "usr1" => Ok(Mask::blocking(&[SIGUSR1])),
        other => Err(wrong(other)),
    }
}

pub fn run(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["handler", how] => interrupts::handle_signal(SIGUSR1, how == "restart").map(ok),
        ["handled"] => Ok(interrupts::handled().to_string()),
        ["tryhandlers"] => Ok(interrupts::try_handlers().replace('\n', " | ")),
        // The command runs with the signal blocked in its thread, and pending there.
        [how @ ("blocked" | "pending"), ref command @ ..] => {
            interrupts::block_signal(SIGUSR1, true);
            if how == "pending" {
                kill_thread(thread_id(), SIGUSR1)?;
            }
            let result = execute(script, &command.join(" "));
            // Before it is let through: what ran, ran inside the call.
            let handled = interrupts::handled();
            interrupts::block_signal(SIGUSR1, false);
            Ok(format!("{result}, handled {handled}"))
        }
        ["ppoll", name, events, timeout_ms, mask] => {
            let fd = script.object(name)?.fd;
            let events = events_of(events)? as i16;
            let found = interrupts::ppoll(fd, events, number(timeout_ms)?, mask_of(mask)?)?;
            Ok(event_names(u32::from(found.cast_unsigned())))
        }
        ["pselect", name, events, timeout_ms, mask] => {
            let fd = script.object(name)?.fd;
            let wants = (events.contains("in"), events.contains("out"));
            let found = interrupts::pselect(fd, wants, number(timeout_ms)?, mask_of(mask)?)?;
            Ok(format!("{found:?}"))
        }
        [how @ ("eppwait" | "eppwait2"), set, timeout_ms, mask] => {
            let fd = script.object(set)?.fd;
            let (timeout_ms, mask) = (number(timeout_ms)?, mask_of(mask)?);
            interrupts::epoll_pwait(fd, timeout_ms, mask, how == "eppwait2").map(event_list)
        }
        _ => Err(wrong(&words.join(" "))),
    }
}
