//! From traffic to placement and back: who talks to whom and how much, found by itself; pinnings
//! that can be taken back; and the loop between them.
#![deny(unsafe_code)]

pub mod actuator;
pub mod apply;
pub mod discover;
pub mod engine;
pub mod folder;
pub mod function;
pub mod journal;
pub mod merge;
pub mod observer;
pub mod overrides;
pub mod problem;
pub mod process;
pub mod rate;
pub mod record;
pub mod refine;
pub mod replay;
pub mod shift;
pub mod source;
pub mod watch;
