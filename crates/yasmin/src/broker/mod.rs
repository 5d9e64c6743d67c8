//! Talking to the broker: where it listens, its greeting, its status, and starting one.

pub mod client;
pub mod start;

pub use client::Client;
pub use yasmin_segment::socket;
