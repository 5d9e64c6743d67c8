//! The command line of `yasmin host`.

use crate::segment::cli::{RightsWord, parse_bytes};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use yasmin_segment::Rights;

#[derive(Args)]
pub struct Host {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Show the guests, and which of them share memory
    Status(Status),
    /// Take all memory from a guest, or what two guests share; connections go on by TCP. With a
    /// command: what moves the guest then
    Leave(Leave),
    /// Let a guest, or a pair, that has left have memory again
    Join(Join),
    /// Memory that programs of several guests ask for by name
    #[command(subcommand)]
    Segment(SegmentVerb),
}

#[derive(Subcommand)]
pub enum SegmentVerb {
    /// Make a segment, and give it to guests
    Create(SegmentCreate),
    /// Give guests rights to a segment, or take them away
    Allow(SegmentAllow),
    /// List the segments of guests, and who has them
    Ls(SegmentLs),
    /// Remove segments; the memory goes when nobody has it any more
    Rm(SegmentRm),
}

#[derive(Args)]
pub struct SegmentCreate {
    /// 1 to 32 letters, digits, dots, hyphens and underscores
    pub name: String,
    /// In bytes, or with K, M, G or T
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: u64,
    /// Who may do what, such as web:write for everyone in that guest, or db/1000:read for one user
    #[arg(long, value_name = "GUEST[/UID]:RIGHTS", value_parser = parse_grant)]
    pub allow: Vec<Grant>,
    #[command(flatten)]
    pub desk: Desk,
}

#[derive(Args)]
pub struct SegmentAllow {
    pub name: String,
    /// As web:write for everyone in that guest, db/1000:read for one user, web:none
    #[arg(required = true, value_name = "GUEST[/UID]:RIGHTS", value_parser = parse_grant)]
    pub grants: Vec<Grant>,
    #[command(flatten)]
    pub desk: Desk,
}

#[derive(Args)]
pub struct SegmentLs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub desk: Desk,
}

#[derive(Args)]
pub struct SegmentRm {
    #[arg(required = true)]
    pub names: Vec<String>,
    /// At once, from under programs that have it: they get SIGBUS
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub desk: Desk,
}

/// What everyone in a guest may do with a segment, or one user by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub guest: String,
    pub user: Option<u32>,
    pub rights: Rights,
}

fn parse_grant(text: &str) -> Result<Grant, String> {
    let bad = || format!("'{text}': give for example web:write, db/1000:read or web:none");
    let (whom, rights) = text.split_once(':').ok_or_else(bad)?;
    let rights = RightsWord::from_str(rights, false).map_err(|_| bad())?.into();
    let (guest, user) = match whom.split_once('/') {
        Some((guest, user)) => (guest, Some(user.parse().map_err(|_| bad())?)),
        None => (whom, None),
    };
    if guest.is_empty() {
        return Err(bad());
    }
    Ok(Grant { guest: guest.to_owned(), user, rights })
}

#[derive(Args)]
pub struct Desk {
    /// The socket of the broker of KVM guests [default: /run/yasmin/host.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub desk: Desk,
}

#[derive(Args)]
pub struct Leave {
    /// A guest as the file of yasmind --host names it, or two for what they share
    #[arg(required = true, num_args = 1..=2, value_name = "GUEST")]
    pub guests: Vec<String>,
    /// How long to wait until the memory has gone
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=600))]
    pub within: u32,
    #[command(flatten)]
    pub desk: Desk,
    /// Run this when the memory has gone, as what moves the guest; if it fails, the guest joins again
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct Join {
    /// As in leave
    #[arg(required = true, num_args = 1..=2, value_name = "GUEST")]
    pub guests: Vec<String>,
    #[command(flatten)]
    pub desk: Desk,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants() {
        let grant = |guest: &str, user, rights| Grant { guest: guest.to_owned(), user, rights };
        assert_eq!(parse_grant("web:write"), Ok(grant("web", None, Rights::Write)));
        assert_eq!(parse_grant("web.1/0:none"), Ok(grant("web.1", Some(0), Rights::None)));
        for bad in ["", "web", "web:", "web:all", ":read", "/1:read", "web/:read", "web/root:read"]
        {
            assert!(parse_grant(bad).is_err(), "{bad}");
        }
    }
}
