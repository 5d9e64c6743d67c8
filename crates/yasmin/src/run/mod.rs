//! `yasmin run`: decides whether the program can be accelerated, then becomes it.
//!
//! Whatever goes wrong with the library or the broker costs one line and the acceleration,
//! never the program.

mod elf;
mod filter;
mod inject;
mod lookup;
mod preload;
mod privilege;
mod verdict;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::broker::{socket, start};
use crate::{cli, install};
use verdict::Verdict;

/// What a program is given so that its connections may get rings.
struct Acceleration {
    library: PathBuf,
    socket: PathBuf,
    /// What gives the library to a program without a loader.
    injector: Option<PathBuf>,
}

/// Returns only if the program could not be started.
pub fn run(options: &cli::Run) -> ExitCode {
    let (name, arguments) = options.program.split_first().expect("clap requires a program");
    let path = match lookup::find(name) {
        Ok(path) => path,
        Err(error) => {
            eprintln!("yasmin: {}: {error}", name.display());
            return ExitCode::from(error.exit_code());
        }
    };
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    match prepare(options, &path, arguments) {
        (Some(with), None) => {
            if options.verbose {
                let (library, socket) = (with.library.display(), with.socket.display());
                eprintln!("yasmin: {} runs with {library}, broker {socket}", name.display());
            }
            with.apply(options, &mut command);
            if let Some(injector) = &with.injector
                && let Err(refused) = inject::attend(injector, &with.library)
                && !options.quiet
            {
                eprintln!("yasmin: {} runs without acceleration: {refused}", name.display());
            }
        }
        (with, Some(reason)) => {
            if !options.quiet {
                eprintln!("yasmin: {} runs without acceleration: {reason}", name.display());
            }
            if let Some(with) = with {
                with.apply(options, &mut command);
            }
        }
        (None, None) => unreachable!("no acceleration always has a reason"),
    }
    let error = command.exec();
    eprintln!("yasmin: {}: {error}", name.display());
    ExitCode::from(lookup::exit_code(&error))
}

/// The acceleration, if there is something to gain from it, and the reason why the program
/// itself will not be accelerated. Both: its children may be, or it may be later.
fn prepare(
    options: &cli::Run,
    path: &Path,
    arguments: &[std::ffi::OsString],
) -> (Option<Acceleration>, Option<String>) {
    let socket = match socket::resolve(options.broker.socket.as_deref()) {
        Ok(socket) => socket,
        Err(error) => return (None, Some(error.to_string())),
    };
    let library = match preload::library() {
        Ok(library) => library,
        Err(error) => return (None, Some(error.to_string())),
    };
    let verdict = verdict::of(path, arguments, &library);
    let mut with = Acceleration { library, socket, injector: None };
    match verdict {
        Verdict::Accelerated => {}
        Verdict::Injected => match install::find(install::INJECTOR) {
            Ok(injector) => with.injector = Some(injector),
            Err(error) => return (Some(with), Some(error.to_string())),
        },
        Verdict::ChildrenOnly(reason) => return (Some(with), Some(reason)),
        Verdict::Never(reason) => return (None, Some(reason)),
    }
    let broker = if options.no_broker {
        start::greet(&with.socket).map_err(|trouble| trouble.to_string())
    } else {
        start::ensure(&with.socket).map_err(|error| error.to_string())
    };
    let reason = broker.err().map(|why| format!("broker {}: {why}", with.socket.display()));
    (Some(with), reason)
}

impl Acceleration {
    fn apply(&self, options: &cli::Run, command: &mut Command) {
        let existing = std::env::var_os(preload::VARIABLE);
        command.env(preload::VARIABLE, preload::prepended(&self.library, existing.as_deref()));
        command.env(yasmin_control::SOCKET_ENV, &self.socket);
        if let Some(spin_us) = options.spin_us {
            command.env(OsStr::new("YASMIN_SPIN_US"), spin_us.to_string());
        }
        if let Some(percent) = options.spin_share {
            command.env(OsStr::new("YASMIN_SPIN_SHARE"), percent.to_string());
        }
        if options.allow_io_uring {
            command.env(OsStr::new("YASMIN_ALLOW_IO_URING"), "1");
        } else {
            let installed = filter::refuse_io_uring();
            if let (Err(error), true) = (installed, options.verbose) {
                eprintln!("yasmin: io_uring stays allowed: {error}");
            }
        }
    }
}
