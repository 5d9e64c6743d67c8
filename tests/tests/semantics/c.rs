//! Programs in C, for what only C can do: compiled for the test that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use yasmin_tests::lab::Folder;

/// Compiles `sources` of this folder to a program or object `name` in `folder`.
#[track_caller]
pub fn compile(folder: &Folder, name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics");
    let output = folder.path().join(name);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&output)
        .args(sources.iter().map(|source| here.join(source)))
        .status()
        .expect("cc");
    assert!(status.success(), "cc: {status}");
    output
}
