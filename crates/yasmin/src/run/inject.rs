//! Has `yasmin-inject` give the library to the program that this process is about to become.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{PTracer, set_ptracer};

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the system does not let this program be traced (ptrace), and it has no loader")]
    Untraceable,
}

/// # Errors
/// Nobody traces this process: the program will go on as it is.
pub fn attend(injector: &Path, library: &Path) -> Result<(), Refused> {
    // Yama's ptrace_scope, where there is such: whose number is not known yet.
    let _ = set_ptracer(PTracer::Any);
    let answer = start(injector, library);
    let _ = set_ptracer(PTracer::None);
    answer
}

fn start(injector: &Path, library: &Path) -> Result<(), Refused> {
    let mut command = Command::new(injector);
    command.arg(rustix::thread::gettid().to_string()).arg(library).env_clear();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut tracer = [0; 4];
    let answer = child.stdout.take().expect("it is a pipe").read_exact(&mut tracer);
    child.wait()?;
    answer.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Refused::Untraceable,
        _ => error.into(),
    })
}
