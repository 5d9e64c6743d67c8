//! The peer that sends and checks a stream: forms of calls, forms of waiting, and the exchange.
//!
//! Both peers get the same seed. Each direction's bytes are a `Pattern` of that seed and the
//! direction, so that every received byte is checked where it arrives.

pub mod config;
pub mod exchange;
pub mod rx;
pub mod tx;
pub mod wait;

pub use config::{Config, Exchange, Pause, Role, RxForm, TxForm, WaitForm};

/// Why a transfer stopped before it had all its bytes.
#[derive(Debug)]
pub enum Stop {
    /// The peer's stream ended.
    Eof,
    /// A call failed.
    Failed { call: &'static str, error: std::io::Error },
    /// The bytes are not those that were sent.
    Corrupt(crate::pattern::Mismatch),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Eof => write!(out, "eof"),
            Self::Failed { call, error } => {
                write!(out, "{call} {}", crate::sys::errno_name(error))
            }
            Self::Corrupt(mismatch) => write!(out, "corrupt: {mismatch}"),
        }
    }
}

fn failed(call: &'static str) -> impl FnOnce(std::io::Error) -> Stop {
    move |error| Stop::Failed { call, error }
}
