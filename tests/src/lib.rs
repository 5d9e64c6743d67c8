//! End-to-end test support: a private broker, namespaces, peers, and proof of what went by ring.
//!
//! ```text
//!  tests/*.rs ── Lab ──┬── broker (yasmind, socket in a temporary directory)
//!                      ├── Site a ── peer (src/bin/*, LD_PRELOAD=libyasmin.so)
//!                      └── Site b ── peer
//!                           (one namespace each, joined by veth; or both the host's loopback)
//! ```
//!
//! Peers call libc and nothing else on their sockets, through `sys`, the only module with
//! `unsafe`. They talk to the test over stdin and stdout, one line a message; that is also how
//! steps are ordered, so nothing here sleeps to wait for something else.
//!
//! `YASMIN_TEST_MODE` says what the peers run on:
//! - `ring` (the default): the library is loaded, and tests prove that the ring was used;
//! - `tcp`: no library, and that proof left out: the harness tested on its own;
//! - `broken`: no library, but the proof asked for: every test that asks for it must fail.
#![deny(unsafe_code)]

pub mod astray;
pub mod closing;
pub mod installed;
pub mod job;
pub mod lab;
pub mod netns;
pub mod pattern;
pub mod process;
pub mod redis;
pub mod runtimes;
pub mod script;
pub mod segment;
pub mod status;
pub mod stream;
#[allow(unsafe_code)]
pub mod sys;

/// Path of one of this package's peers, from a test.
#[macro_export]
macro_rules! peer {
    ($name:literal) => {
        std::path::Path::new(env!(concat!("CARGO_BIN_EXE_", $name)))
    };
}
