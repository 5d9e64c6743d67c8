//! `yasmin place` as a user sees it, with real processes, whose pinning is read from /proc.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "place/domain.rs"]
mod domain;
#[path = "place/loops.rs"]
mod loops;
#[path = "place/parts.rs"]
mod parts;
#[path = "place/world.rs"]
mod world;
