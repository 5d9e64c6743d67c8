//! What needs `unsafe`: memory that others can write, and calls that no library wraps safely.
#![allow(unsafe_code)]

pub mod bpf;
pub mod lock;
pub mod page;
pub mod sockopt;
pub mod table;
pub mod vsock;
