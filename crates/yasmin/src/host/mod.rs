//! `yasmin host`: what the broker of KVM guests (`yasmind --host`) has given, and takes away.

pub mod cli;
mod moving;
mod segment;
pub mod table;

use crate::status::write_line;
use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use yasmin_control::SYSTEM_DIR;
use yasmin_control::host::{Answer, Ask, HOST_SOCKET_NAME, HostStatus};

/// The broker answers at once, but for what it is asked to wait for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

pub fn run(options: &cli::Host) -> ExitCode {
    match carry_out(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("yasmin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The exit code.
fn carry_out(options: &cli::Host) -> anyhow::Result<u8> {
    let out = &mut std::io::stdout();
    match &options.verb {
        cli::Verb::Status(options) => {
            let status = status(&place(&options.desk))?;
            let text = if options.json {
                serde_json::to_string_pretty(&status)?
            } else {
                table::draw(&status, crate::status::colour())
            };
            write_line(out, &text)?;
        }
        cli::Verb::Leave(options) if !options.command.is_empty() => {
            let socket = place(&options.desk);
            return moving::run(&socket, &options.guests, options.within, &options.command);
        }
        cli::Verb::Leave(options) => {
            leave(&place(&options.desk), &options.guests, options.within)?;
            let text = match &options.guests[..] {
                [guest] => format!("{guest} has no memory of ours any more: it may move"),
                pair => format!("{} share no memory any more", pair.join(" and ")),
            };
            write_line(out, &text)?;
        }
        cli::Verb::Join(options) => {
            done(ask(&place(&options.desk), &join(&options.guests), Duration::ZERO)?)?;
        }
        cli::Verb::Segment(verb) => return segment::carry_out(verb),
    }
    Ok(0)
}

/// Returns when the memory has gone.
fn leave(socket: &Path, guests: &[String], within_s: u32) -> anyhow::Result<()> {
    let question = Ask::Leave { guests: guests.to_vec(), within_s };
    done(ask(socket, &question, Duration::from_secs(within_s.into()))?)
}

fn join(guests: &[String]) -> Ask {
    Ask::Join { guests: guests.to_vec() }
}

fn place(desk: &cli::Desk) -> PathBuf {
    desk.socket.clone().unwrap_or_else(|| Path::new(SYSTEM_DIR).join(HOST_SOCKET_NAME))
}

/// What the broker at this socket, or at the usual one, has given.
pub fn status(socket: &Path) -> anyhow::Result<HostStatus> {
    match ask(socket, &Ask::Status, Duration::ZERO)? {
        Answer::Status(status) => Ok(status),
        other => done(other).and_then(|()| bail!("the broker says something else than asked")),
    }
}

/// Of this machine, if it is such a host and we may ask.
pub fn status_here() -> Option<HostStatus> {
    status(&Path::new(SYSTEM_DIR).join(HOST_SOCKET_NAME)).ok()
}

fn ask(socket: &Path, question: &Ask, within: Duration) -> anyhow::Result<Answer> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "no broker of KVM guests answers at {}; is 'yasmind --host' running, and are you root?",
            socket.display()
        )
    })?;
    stream.set_read_timeout(Some(within + ANSWERS_WITHIN))?;
    stream.write_all(format!("{}\n", serde_json::to_string(question)?).as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("the broker does not answer")?;
    if text.is_empty() {
        bail!("the broker has ended, or has too many to answer");
    }
    serde_json::from_str(&text).context("the broker's answer is of another version")
}

fn done(answer: Answer) -> anyhow::Result<()> {
    match answer {
        Answer::Refused(why) => bail!(why),
        Answer::Done | Answer::Status(_) => Ok(()),
    }
}
