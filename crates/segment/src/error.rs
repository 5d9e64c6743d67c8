//! What can go wrong, for people and, as an error number, for C.

use std::path::PathBuf;

use nix::errno::Errno;
use yasmin_control::CONTROL_VERSION;
use yasmin_control::segment::{BadHeader, NAME_BYTES, Refusal, Rights};

/// Why something was not done. Nothing else was touched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "'{0}' is no name for a segment: give 1 to {NAME_BYTES} letters, digits, dots, hyphens or underscores, a letter or a digit first"
    )]
    Name(String),
    #[error(
        "a segment of {0} bytes cannot be: give 1 byte or more, and no more than the machine has"
    )]
    Size(u64),
    #[error("{0:#x} are no flags of this call")]
    Flags(u64),
    #[error(
        "no broker listens on {path}: start one with 'yasmind', or 'systemctl start yasmind.socket' for all users; YASMIN_SOCKET names another place", path = .0.display()
    )]
    NoBroker(PathBuf),
    #[error("user {owner} owns {folder}, so a broker there is not believed: set YASMIN_SOCKET or XDG_RUNTIME_DIR", folder = .folder.display())]
    ForeignFolder { folder: PathBuf, owner: u32 },
    #[error("user {uid} listens on {path}: only a broker of root's or of your own is believed, or, in a user namespace, one that YASMIN_SOCKET names", path = .path.display())]
    ForeignBroker { path: PathBuf, uid: u32 },
    #[error("the broker on {path} speaks version {theirs}, this library {CONTROL_VERSION}: use those of one version", path = .path.display())]
    Version { path: PathBuf, theirs: u32 },
    #[error("the broker on {path} does not answer", path = .0.display())]
    Silent(PathBuf),
    #[error("the broker on {path} hung up", path = .0.display())]
    HungUp(PathBuf),
    #[error("the broker's answer makes no sense: {0}")]
    Nonsense(String),
    #[error("segment {name}: {}", refused(.why))]
    Refused { name: String, why: Refusal },
    #[error(
        "segment {name} belongs at {start:#x} to {end:#x}, and this process has {other} there: attach it before that, or elsewhere"
    )]
    AddressTaken { name: String, start: u64, end: u64, other: String },
    #[error("segment {name} is attached already")]
    Attached { name: String },
    #[error("segment {name} is not attached")]
    NotAttached { name: String },
    #[error("segment {name}: {}", damaged(.why))]
    Header { name: String, why: BadHeader },
    #[error("segment {name} cannot be mapped: {errno}")]
    Map { name: String, errno: Errno },
    #[error("{doing}: {errno}")]
    System { doing: &'static str, errno: Errno },
}

impl Error {
    /// As C is told, and errno(3) says.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Name(_) | Self::Size(_) | Self::Flags(_) | Self::NotAttached { .. } => {
                Errno::EINVAL
            }
            Self::NoBroker(_) => Errno::ECONNREFUSED,
            Self::ForeignFolder { .. } | Self::ForeignBroker { .. } => Errno::EPERM,
            Self::Version { .. } => Errno::EPROTONOSUPPORT,
            Self::Silent(_) => Errno::ETIMEDOUT,
            Self::HungUp(_) => Errno::ECONNRESET,
            Self::Nonsense(_) => Errno::EPROTO,
            Self::Refused { why, .. } => match why {
                Refusal::Taken { .. } => Errno::EEXIST,
                Refusal::NoSegment => Errno::ENOENT,
                Refusal::Rights { .. } => Errno::EACCES,
                Refusal::NotOwner { .. } => Errno::EPERM,
                Refusal::TooLarge { .. } => Errno::EFBIG,
                Refusal::UserShare { .. } | Refusal::AllShares { .. } | Refusal::TooMany { .. } => {
                    Errno::EDQUOT
                }
                Refusal::Group { .. } | Refusal::HugePages { .. } => Errno::ENOMEM,
                Refusal::TooManyUsers { .. } => Errno::E2BIG,
                Refusal::OfHost => Errno::EPERM,
                Refusal::Unseen => Errno::EOPNOTSUPP,
                Refusal::NoAddress => Errno::ENOSPC,
                Refusal::Kernel { errno } => {
                    return i32::try_from(*errno).unwrap_or(Errno::EIO as i32);
                }
            },
            Self::AddressTaken { .. } => Errno::EADDRINUSE,
            Self::Attached { .. } => Errno::EALREADY,
            Self::Header { why: BadHeader::Version { .. }, .. } => Errno::EPROTONOSUPPORT,
            Self::Header { .. } => Errno::EBADMSG,
            Self::Map { errno, .. } | Self::System { errno, .. } => *errno,
        };
        errno as i32
    }
}

fn refused(why: &Refusal) -> String {
    match *why {
        Refusal::Taken { owner } => format!(
            "the name is taken by one of user {owner}; take another name, or let its owner remove it"
        ),
        Refusal::NoSegment => "there is none of this name".to_owned(),
        Refusal::Rights { has: Rights::None } => {
            "you have no rights to it; its owner gives them with 'yasmin segment allow'".to_owned()
        }
        Refusal::Rights { has } => format!(
            "you have the right to {} it, and no more; its owner gives others with 'yasmin segment allow'",
            has.describe()
        ),
        Refusal::NotOwner { owner } => {
            format!("only its owner, user {owner}, and root may do that")
        }
        Refusal::TooLarge { most_bytes } => {
            format!("it is too large: this machine has {most_bytes} bytes")
        }
        Refusal::UserShare { left_bytes } => {
            format!("your segments may take {left_bytes} bytes more (yasmind --segment-user-limit)")
        }
        Refusal::AllShares { left_bytes } => format!(
            "all segments together may take {left_bytes} bytes more (yasmind --segment-limit)"
        ),
        Refusal::TooMany { most } => {
            format!("you may have {most} segments at the moment (yasmind --segments)")
        }
        Refusal::Group { left_bytes } => format!(
            "this process's control group, or the machine, has {left_bytes} bytes left, and the segment can take more; raise the group's limit, or open it as sparse, and be killed if it is filled"
        ),
        Refusal::HugePages { free_bytes } => format!(
            "{free_bytes} bytes are free in huge pages of 2 MiB; raise vm.nr_hugepages, or do without them"
        ),
        Refusal::TooManyUsers { most } => format!("{most} users can be named for it"),
        Refusal::Unseen => "the broker does not see this process, so it cannot tell when it ends; \
             remove the segment yourself"
            .to_owned(),
        Refusal::Kernel { errno } => {
            let errno = Errno::from_raw(i32::try_from(errno).unwrap_or(0));
            format!("the broker cannot make it: {errno}")
        }
        Refusal::OfHost => {
            "it is the host's, which gives it to several guests; 'yasmin host segment' on \
             the host says who may do what with it, and removes it"
                .to_owned()
        }
        Refusal::NoAddress => "no addresses are left for it".to_owned(),
    }
}

fn damaged(why: &BadHeader) -> String {
    match *why {
        BadHeader::Truncated { len_bytes } => {
            format!("its memory is truncated: {len_bytes} bytes are left")
        }
        BadHeader::Version { value } => format!(
            "its header has version {value}, this library speaks {}",
            yasmin_control::segment::HEADER_VERSION
        ),
        BadHeader::Magic | BadHeader::Place | BadHeader::Name => {
            "its header was written over, so its bytes are not to be relied on; remove it and make it anew".to_owned()
        }
    }
}
