//! Messages between the library, the broker and the command (spec/wire.md section 6).
//!
//! They travel over an AF_UNIX SOCK_SEQPACKET socket, one message a datagram, descriptors
//! beside it as SCM_RIGHTS. Parsing only: no I/O, no `unsafe`, no allocation.
#![cfg_attr(not(any(test, feature = "status")), no_std)]
#![forbid(unsafe_code)]

pub mod directory;
pub mod guest;
#[cfg(feature = "status")]
pub mod host;
pub mod message;
pub mod negative;
pub mod segment;
#[cfg(feature = "status")]
pub mod status;
pub mod uplink;

pub use message::{BadMessage, Decline, FromBroker, MESSAGE_BYTES, Role, Socket, Then, ToBroker};

/// Version of these messages. A broker answers a HELLO of another version with REFUSED and
/// closes; the library then leaves everything on TCP.
pub const CONTROL_VERSION: u32 = 15;

/// File name of the broker's socket in its directory.
pub const SOCKET_NAME: &str = "broker.sock";

/// Environment variable that names the broker's socket to the library and the command.
pub const SOCKET_ENV: &str = "YASMIN_SOCKET";

/// The system broker's directory.
pub const SYSTEM_DIR: &str = "/run/yasmin";
