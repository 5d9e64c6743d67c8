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

/// For tests that attach in this process: their brokers do not know of each other, and give the same
/// addresses.
fn attach_alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
