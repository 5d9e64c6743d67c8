//! Talking to the broker: where it listens, its greeting, its status, and starting one.

pub mod client;
pub mod socket;
pub mod start;

pub use client::Client;
