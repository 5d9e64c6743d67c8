//! Real programs, whole jobs, each result checked: over plain TCP, under `yasmin run`, with
//! rings forced, and with the library taking its unlikely turns.

mod haproxy;
mod memcached;
mod nginx;
mod postgresql;
mod redis;
mod web;

use std::path::Path;

/// Fails when two files differ, without printing them.
#[track_caller]
fn assert_same_files(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    let (a, b) = (a.as_ref(), b.as_ref());
    let [left, right] = [a, b].map(|path| {
        std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    let at = left.iter().zip(&right).position(|(one, other)| one != other);
    assert!(
        left.len() == right.len() && at.is_none(),
        "{} ({} bytes) and {} ({} bytes) differ, first at {at:?}",
        a.display(),
        left.len(),
        b.display(),
        right.len()
    );
}
