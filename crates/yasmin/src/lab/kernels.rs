//! The kernels' sources, which this command carries, and their programs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::placement::Placement;
use super::plan::Case;
use super::way::{Kernel, Model};
use crate::demo::process::{self, Process};
use crate::install;

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../lab/", $name)))),*]
    };
}

const SOURCES: &[(&str, &str)] = sources![
    "Makefile",
    "kernels/lab.h",
    "kernels/pes.h",
    "kernels/ranks.h",
    "kernels/threads.h",
    "kernels/product.h",
    "kernels/product-serial.c",
    "kernels/product-openmp.c",
    "kernels/product-mpi.c",
    "kernels/product-shmem.c",
    "kernels/heat.h",
    "kernels/heat-serial.c",
    "kernels/heat-openmp.c",
    "kernels/heat-mpi.c",
    "kernels/heat-shmem.c",
    "kernels/is.h",
    "kernels/is-serial.c",
    "kernels/is-openmp.c",
    "kernels/is-mpi.c",
    "kernels/is-shmem.c",
    "kernels/imb-mpi.c",
    "kernels/sockets.h",
    "kernels/sockets.c",
    "kernels/behaviour.c",
    "kernels/sockmap.bpf.c",
    "../shmem/include/shmem.h",
    "../shmem/include/shmem_generic.h",
];

/// What every measurement needs, and the Debian packages that have it.
const NEEDS: [(&str, &str); 2] = [("make", "make"), ("gcc", "gcc")];
const BUILD_LIMIT: Duration = Duration::from_secs(300);

/// Builds what `cases` on `placements` need in `folder`; returns the folder of the programs.
///
/// # Errors
/// Names every program that is missing, and how to get it.
pub fn build(cases: &[Case], placements: &[Placement], folder: &Path) -> anyhow::Result<PathBuf> {
    need_programs(cases, placements)?;
    let sources = folder.join("lab");
    fs::create_dir_all(sources.join("kernels"))?;
    fs::create_dir_all(folder.join("shmem/include"))?;
    for (name, text) in SOURCES {
        fs::write(sources.join(name), text)?;
    }
    let programs = folder.join("programs");
    let of_models = cases.iter().map(|case| case.model.target());
    let of_paths = cases.iter().filter_map(|case| case.path.target());
    let targets: BTreeSet<&str> = of_models.chain(of_paths).collect();
    let mut make = Command::new(process::find("make").context("make is missing")?);
    make.arg("-C").arg(&sources).arg(format!("OUT={}", programs.display())).args(targets);
    if cases.iter().any(|case| case.model == Model::Shmem) {
        let library = install::find(install::SHMEM)
            .context("OpenSHMEM is missing; make build has it; or leave it out, see --only")?;
        make.arg(format!("SHMEM_LIBRARY={}", library.display()));
    }
    Process::start(make, folder, "make")?.finish(BUILD_LIMIT)?;
    if let Some(case) = cases.iter().find(|case| case.kernel == Kernel::Iceoryx2) {
        let built = iceoryx2().with_context(|| format!("{}: {NO_ICEORYX2}", case.name))?;
        symlink(built, programs.join(case.kernel.program(case.model)))?;
    }
    Ok(programs)
}

/// Its program, which takes Cargo a minute: `make lab-peers` puts it beside this command.
pub fn iceoryx2() -> Option<PathBuf> {
    let name = Kernel::Iceoryx2.program(Model::Iceoryx2);
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(&name)).filter(|path| path.is_file()).or_else(|| process::find(&name))
}

pub const NO_ICEORYX2: &str =
    "iceoryx2-pingpong is missing; make lab-peers, in a checkout, builds it";

fn need_programs(cases: &[Case], placements: &[Placement]) -> anyhow::Result<()> {
    let of_models = cases.iter().flat_map(Case::needs);
    let of_placements = placements.iter().flat_map(|placement| &placement.needs);
    let missing: BTreeSet<(&str, &str)> = NEEDS
        .iter()
        .chain(of_models)
        .map(|(program, package)| (*program, *package))
        .chain(of_placements.map(|(program, package)| (program.as_str(), package.as_str())))
        .filter(|(program, _)| process::find(program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let packages: BTreeSet<&str> = missing.iter().map(|(_, package)| *package).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    bail!(
        "missing: {}; on Debian: apt-get install {}; or leave out what needs them, see --only",
        names.join(", "),
        packages.join(" ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_carried() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/kernels");
        for entry in fs::read_dir(folder).unwrap() {
            let name = format!("kernels/{}", entry.unwrap().file_name().display());
            assert!(SOURCES.iter().any(|(carried, _)| *carried == name), "{name}");
        }
    }
}
