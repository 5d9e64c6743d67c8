//! Segments: memory at one address in several processes, through a real broker and the C library.
//!
//! `YASMIN_TEST_SEGMENT_PROCESSES` is how many processes attach at once (default 1000).

mod command;
mod crowd;
mod errors;
mod installed;
mod life;
mod locks;
mod restart;
mod rights;
