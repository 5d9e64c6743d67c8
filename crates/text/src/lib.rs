//! Which system calls a piece of x86-64 text makes by instructions of its own.
//!
//! The library in front of libc sees what a program does with its sockets only as far as it goes
//! through libc. Before it gives a process channels, it looks through the program's executable
//! segments for instructions that enter the kernel. There are hardly any: finding the two bytes
//! is all there is to do for most programs, and only what stands around them is decoded.
//!
//! An x86 instruction can begin at any byte, and the two bytes may lie inside another one. But
//! decoding from a wrong byte falls in step with the right one within a few instructions. So
//! the bytes before a find are decoded from many starts: where all go past it, it is no
//! instruction. What stays in doubt counts as one.
//!
//! Works on bytes that were mapped, reads nothing else and never panics, whatever they are.
#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod find;
mod flow;
pub mod go;
mod number;
pub mod sites;
mod unwind;

pub use decode::{Instruction, decode};
pub use find::{Found, Text, judge, next};
pub use flow::{Scratch, is_all_padding};
pub use number::{Concern, concern, is_seen};
pub use unwind::Unwind;
