//! How a kernel's workers are made, and by which path their bytes go.

use serde::{Deserialize, Serialize};

/// A program of the lab, whose sources are in `lab/kernels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    Product,
    Heat,
    Is,
    Imb,
    Sockets,
    /// What programs rely on in a connection, tried one by one.
    Behaviour,
    /// `Sockets` over iceoryx2: `lab/iceoryx2`, which `make lab-peers` builds.
    Iceoryx2,
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    Serial,
    OpenMp,
    OpenMpi,
    Mpich,
    /// OpenSHMEM, this project's own.
    #[serde(rename = "openshmem")]
    Shmem,
    /// A client and a server.
    Sockets,
    /// The same, by iceoryx2's publish-subscribe.
    Iceoryx2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Threads of one process, or one worker alone.
    Memory,
    Tcp,
    Unix,
    /// TCP under `yasmin run`.
    Rings,
    /// TCP whose bytes a BPF program puts into the peer's queue (`lab/kernels/sockmap.bpf.c`).
    Sockmap,
    /// The shared memory that the MPI library itself has for ranks of one machine.
    MpiShm,
    /// Likewise iceoryx2's.
    Iceoryx2,
    /// A segment that all workers have, on whatever machines.
    Segments,
}

impl Kernel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Heat => "heat",
            Self::Is => "is",
            Self::Imb => "imb",
            Self::Sockets => "sockets",
            Self::Behaviour => "behaviour",
            Self::Iceoryx2 => "iceoryx2",
        }
    }

    pub fn models(self) -> &'static [Model] {
        use Model::{Iceoryx2, Mpich, OpenMp, OpenMpi, Serial, Shmem, Sockets};
        match self {
            Self::Product | Self::Heat | Self::Is => &[Serial, OpenMp, OpenMpi, Mpich, Shmem],
            Self::Imb => &[OpenMpi, Mpich],
            Self::Sockets | Self::Behaviour => &[Sockets],
            Self::Iceoryx2 => &[Iceoryx2],
        }
    }

    /// The program that `lab/Makefile` makes of it.
    pub fn program(self, model: Model) -> String {
        match model {
            Model::Sockets => self.name().to_owned(),
            Model::Iceoryx2 => "iceoryx2-pingpong".to_owned(),
            _ => format!("{}-{}", self.name(), model.name()),
        }
    }
}

impl Model {
    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::OpenMp => "openmp",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Shmem => "openshmem",
            Self::Sockets => "sockets",
            Self::Iceoryx2 => "iceoryx2",
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::OpenMp => "OpenMP",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Shmem => "OpenSHMEM",
            Self::Sockets => "sockets",
            Self::Iceoryx2 => "iceoryx2",
        }
    }

    /// On `machines` machines. Empty where it cannot run there.
    pub fn paths(self, machines: usize) -> &'static [Path] {
        match (self, machines) {
            (Self::Serial | Self::OpenMp, 1) => &[Path::Memory],
            (Self::Serial | Self::OpenMp, _) => &[],
            (Self::OpenMpi | Self::Mpich, 1) => &[Path::Tcp, Path::Rings, Path::MpiShm],
            (Self::OpenMpi | Self::Mpich, _) => &[Path::Tcp, Path::Rings],
            (Self::Shmem, _) => &[Path::Segments],
            (Self::Iceoryx2, 1) => &[Path::Iceoryx2],
            (Self::Iceoryx2, _) => &[],
            (Self::Sockets, _) => &[Path::Tcp, Path::Unix, Path::Rings, Path::Sockmap],
        }
    }

    /// Whether it can have so many workers on so many machines, and then has something to move by
    /// `path`. One rank of MPI alone moves nothing: it runs once, and not for every path.
    pub fn takes(self, kernel: Kernel, machines: usize, path: Path, workers: u32) -> bool {
        match self {
            Self::Serial => workers == 1,
            Self::OpenMp => workers >= 1,
            Self::Sockets | Self::Iceoryx2 => workers == 2,
            Self::OpenMpi | Self::Mpich if workers == 1 => {
                machines == 1 && path == Path::Tcp && kernel != Kernel::Imb
            }
            Self::OpenMpi | Self::Mpich | Self::Shmem => workers as usize >= machines,
        }
    }

    pub fn is_mpi(self) -> bool {
        matches!(self, Self::OpenMpi | Self::Mpich)
    }

    /// Programs that it needs, and the Debian packages that have them.
    pub fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Serial | Self::OpenMp | Self::Shmem | Self::Sockets | Self::Iceoryx2 => &[],
            Self::OpenMpi => {
                &[("mpirun.openmpi", "openmpi-bin"), ("mpicc.openmpi", "libopenmpi-dev")]
            }
            Self::Mpich => &[("mpirun.mpich", "mpich"), ("mpicc.mpich", "libmpich-dev")],
        }
    }

    /// What of `lab/Makefile` it needs.
    pub fn target(self) -> &'static str {
        match self {
            Self::Serial | Self::OpenMp | Self::Sockets | Self::Iceoryx2 => "plain",
            Self::OpenMpi | Self::Mpich | Self::Shmem => self.name(),
        }
    }
}

impl Path {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Rings => "rings",
            Self::Sockmap => "sockmap",
            Self::MpiShm => "mpi-shm",
            Self::Iceoryx2 => "iceoryx2",
            Self::Segments => "segments",
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Self::Memory => "one memory",
            Self::Tcp => "plain TCP",
            Self::Unix => "Unix sockets",
            Self::Rings => "rings",
            Self::Sockmap => "BPF sockmap",
            Self::MpiShm | Self::Iceoryx2 => "its own shared memory",
            Self::Segments => "segments",
        }
    }

    /// As `Model::needs`.
    pub fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Sockmap => &[("clang", "clang")],
            _ => &[],
        }
    }

    /// As `Model::target`, where it needs more than the model's.
    pub fn target(self) -> Option<&'static str> {
        (self == Self::Sockmap).then_some("sockmap")
    }
}
