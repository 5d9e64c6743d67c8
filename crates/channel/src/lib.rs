//! A channel's memory in user space.
#![no_std]

pub mod side;
