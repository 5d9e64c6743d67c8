//! Open MPI and MPICH, two ranks: over TCP plain against rings, and their own shared memory
//! against TCP under `yasmin run`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use super::{Expect, Measured, Workload, limit};
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct PingPong {
    library: Library,
    against: Against,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    OpenMpi,
    Mpich,
}

/// What the ranks use when they do not run under `yasmin run`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    Tcp,
    OwnSharedMemory,
}

const SOURCE: &str = include_str!("pingpong.c");
const COMPILE_LIMIT: Duration = Duration::from_secs(60);
const BATCH: &str = "50";

pub fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for library in [Library::OpenMpi, Library::Mpich] {
        for against in [Against::Tcp, Against::OwnSharedMemory] {
            all.push(Box::new(PingPong { library, against }));
        }
    }
    all
}

impl PingPong {
    /// The way that the ranks talk, in the library's own words.
    fn transport(&self, how: How) -> &'static [&'static str] {
        let tcp = how != How::Plain || self.against == Against::Tcp;
        match (self.library, tcp) {
            (Library::OpenMpi, true) => &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
            (Library::OpenMpi, false) => &["--mca", "pml", "ob1", "--mca", "btl", "vader,self"],
            (Library::Mpich, true) => &["-genv", "UCX_TLS", "tcp,self"],
            (Library::Mpich, false) => &["-genv", "UCX_TLS", "posix,self"],
        }
    }

    fn launcher(&self) -> &'static str {
        self.needs()[0].0
    }

    fn compiler(&self) -> &'static str {
        self.needs()[1].0
    }

    /// Compiles the ranks once.
    fn program(&self, stage: &Stage) -> anyhow::Result<PathBuf> {
        let program = stage.folder().join(format!("pingpong-{}", self.compiler()));
        if !program.exists() {
            let source = stage.folder().join("pingpong.c");
            fs::write(&source, SOURCE)?;
            let arguments =
                ["-O2".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()];
            let compiler = stage.start(Side::Server, How::Plain, self.compiler(), arguments)?;
            compiler.finish(COMPILE_LIMIT)?;
        }
        Ok(program)
    }
}

impl Workload for PingPong {
    fn key(&self) -> &'static str {
        match (self.library, self.against) {
            (Library::OpenMpi, Against::Tcp) => "openmpi",
            (Library::OpenMpi, Against::OwnSharedMemory) => "openmpi-shm",
            (Library::Mpich, Against::Tcp) => "mpich",
            (Library::Mpich, Against::OwnSharedMemory) => "mpich-shm",
        }
    }

    fn name(&self) -> &str {
        match (self.library, self.against) {
            (Library::OpenMpi, Against::Tcp) => "Open MPI ping-pong, 1 B",
            (Library::OpenMpi, Against::OwnSharedMemory) => {
                "Open MPI, plain: its own shared memory"
            }
            (Library::Mpich, Against::Tcp) => "MPICH ping-pong, 1 B",
            (Library::Mpich, Against::OwnSharedMemory) => "MPICH, plain: its own shared memory",
        }
    }

    fn unit(&self) -> Unit {
        Unit::Nanoseconds
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        match self.library {
            Library::OpenMpi => {
                &[("mpirun.openmpi", "openmpi-bin"), ("mpicc.openmpi", "libopenmpi-dev")]
            }
            Library::Mpich => &[("mpirun.mpich", "mpich"), ("mpicc.mpich", "libmpich-dev")],
        }
    }

    fn commands(&self) -> Vec<String> {
        let line = |how| format!("{} {} -n 2", self.launcher(), self.transport(how).join(" "));
        vec![
            format!("{} ./pingpong", line(How::Plain)),
            format!("{} yasmin run ./pingpong", line(How::Rings)),
        ]
    }

    fn expect(&self) -> Expect {
        Expect::Either
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let program = self.program(stage)?.display().to_string();
        let mut arguments: Vec<String> = Vec::new();
        if self.library == Library::OpenMpi {
            arguments.extend(["--allow-run-as-root", "--oversubscribe"].map(String::from));
        }
        arguments.extend(self.transport(how).iter().map(ToString::to_string));
        arguments.extend(["-n", "2"].map(String::from));
        arguments.extend(stage.words(how));
        arguments.extend([program, BATCH.to_owned()]);
        // The ranks are under `yasmin run`, not the launcher.
        let run = stage.start(Side::Server, How::Plain, self.launcher(), &arguments)?;
        let output = run.finish(limit(seconds))?;
        let median = output.lines().find_map(|line| line.strip_prefix("median_ns "));
        let value = median.and_then(|text| text.trim().parse().ok());
        let value = value.with_context(|| format!("{} said: {output}", self.launcher()))?;
        Ok(Measured { value, payload_bytes: 0 })
    }
}
