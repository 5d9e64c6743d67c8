//! The command line of `yasmin segment`.

use clap::{Args, Subcommand, ValueEnum};
use nix::unistd::User;
use yasmin_segment::{Rights, Whom};

use crate::cli::Broker;

#[derive(Args)]
pub struct Segment {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Make a segment; it belongs to you
    Create(Create),
    /// List the segments that you may read
    Ls(Ls),
    /// Free the names of segments; the memory goes when nobody has it any more
    Rm(Rm),
    /// Show one segment, and who has it
    Status(Status),
    /// Give rights to a segment of yours, or take them away
    Allow(Allow),
}

#[derive(Args)]
pub struct Create {
    /// 1 to 32 letters, digits, dots, hyphens and underscores
    pub name: String,
    /// In bytes, or with K, M, G or T
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: u64,
    /// Of pages of 2 MiB, which are set aside at once (vm.nr_hugepages)
    #[arg(long)]
    pub huge: bool,
    /// Rights from the start, such as alice:write or everyone:read
    #[arg(long, value_name = "WHOM:RIGHTS", value_parser = parse_grant)]
    pub allow: Vec<(Whom, Rights)>,
    #[command(flatten)]
    pub broker: Broker,
    /// Never start a broker; use one that listens
    #[arg(long)]
    pub no_broker: bool,
}

#[derive(Args)]
pub struct Ls {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Args)]
pub struct Rm {
    #[arg(required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Args)]
pub struct Status {
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Args)]
pub struct Allow {
    pub name: String,
    /// A user, by name or number, or everyone who is not named
    #[arg(value_parser = parse_whom)]
    pub whom: Whom,
    pub rights: RightsWord,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum RightsWord {
    None,
    Read,
    /// And read
    Write,
}

impl From<RightsWord> for Rights {
    fn from(word: RightsWord) -> Self {
        match word {
            RightsWord::None => Self::None,
            RightsWord::Read => Self::Read,
            RightsWord::Write => Self::Write,
        }
    }
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a number of bytes; give for example 65536, 64M or 1G");
    let upper = text.to_ascii_uppercase();
    let (digits, shift) = match upper.char_indices().last() {
        Some((at, 'K')) => (&upper[..at], 10),
        Some((at, 'M')) => (&upper[..at], 20),
        Some((at, 'G')) => (&upper[..at], 30),
        Some((at, 'T')) => (&upper[..at], 40),
        _ => (&upper[..], 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0).ok_or_else(bad)
}

fn parse_whom(text: &str) -> Result<Whom, String> {
    if text == "everyone" {
        return Ok(Whom::Everyone);
    }
    if let Ok(uid) = text.parse() {
        return Ok(Whom::User(uid));
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(Whom::User(user.uid.as_raw())),
        Ok(None) => Err(format!("there is no user '{text}'; give a name, a number or everyone")),
        Err(errno) => Err(format!("user '{text}' cannot be looked up: {errno}")),
    }
}

fn parse_grant(text: &str) -> Result<(Whom, Rights), String> {
    let bad = || format!("'{text}': give for example alice:write, 1000:read or everyone:none");
    let (whom, rights) = text.split_once(':').ok_or_else(bad)?;
    let rights = RightsWord::from_str(rights, false).map_err(|_| bad())?;
    Ok((parse_whom(whom)?, rights.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("1"), Ok(1));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("2T"), Ok(2 << 40));
        for bad in ["", "M", "0", "-1", "1.5G", "1 G", "99999999T", "1\u{e9}"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn grants() {
        assert_eq!(parse_grant("everyone:read"), Ok((Whom::Everyone, Rights::Read)));
        assert_eq!(parse_grant("1000:none"), Ok((Whom::User(1000), Rights::None)));
        assert_eq!(parse_grant("root:write"), Ok((Whom::User(0), Rights::Write)));
        for bad in ["", "root", "root:", "root:all", "no such user:read", ":read"] {
            assert!(parse_grant(bad).is_err(), "{bad}");
        }
    }
}
