//! What needs `unsafe`: memory that others can write, and calls that no library wraps safely.
#![allow(unsafe_code)]

pub mod bpf;
pub mod grants;
pub mod lock;
pub mod memfd;
pub mod page;
pub mod slices;
pub mod sockopt;
pub mod table;
pub mod vsock;

/// A failed system call of the shared memory's.
fn io_error(error: yasmin_channel::Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.into_raw())
}
