//! What the programs that were used say of their versions.

use std::collections::BTreeSet;

use super::report::{Outcome, Version};
use crate::demo::process;

/// gcc, and each MPI that had a part.
pub fn of(outcomes: &[Outcome]) -> Vec<Version> {
    let launchers = outcomes.iter().filter_map(|outcome| outcome.case.model.needs().first());
    let programs: BTreeSet<&str> =
        launchers.map(|(program, _)| *program).chain(["gcc", "ip"]).collect();
    let version = |program: &str| {
        let option = if program == "ip" { "-Version" } else { "--version" };
        let said = process::run(program, &[option]).unwrap_or_default();
        Version { program: program.to_owned(), version: telling(&said) }
    };
    programs.into_iter().map(version).collect()
}

/// The line that has the version: MPICH's is the second.
fn telling(said: &str) -> String {
    let version = said.lines().find(|line| line.trim_start().starts_with("Version:"));
    version
        .or(said.lines().next())
        .unwrap_or("unknown")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_version_is_found() {
        assert_eq!(telling("mpirun (Open MPI) 4.1.4\n\nmore"), "mpirun (Open MPI) 4.1.4");
        assert_eq!(telling("HYDRA build details:\n    Version:      4.0.2\n"), "Version: 4.0.2");
        assert_eq!(telling(""), "unknown");
    }
}
