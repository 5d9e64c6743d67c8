//! Can this program be accelerated, and if not, why?

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use yasmin_image::{MAX_SCRIPTS, Refusal, shebang};
use yasmin_text::sites;

use super::elf::{self, Go, Image};
use super::{lookup, privilege};

/// What the kernel reads of a script to find its interpreter.
const SHEBANG_BYTES: usize = 256;
/// What execvp runs a file with that the kernel does not know.
const SHELL: &str = "/bin/sh";

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Accelerated,
    /// It has no libc: the library has to be injected.
    Injected,
    /// Not this program, but programs that it starts.
    ChildrenOnly(String),
    /// The loader would complain about the library, or fail.
    Never(String),
}

/// Judges the program at `path`, called with `arguments`, for `library`.
pub fn of(path: &Path, arguments: &[OsString], library: &Path) -> Verdict {
    let path = final_program(path, arguments);
    let Some(image) = elf::read(&path) else {
        return Verdict::ChildrenOnly(format!(
            "{} cannot be read as an ELF program",
            path.display()
        ));
    };
    let Some(ours) = elf::read(library) else {
        return Verdict::Never(format!("{} is no ELF library", library.display()));
    };
    if let Some(gained) = privilege::gained(&path) {
        return Verdict::ChildrenOnly(format!(
            "{} {gained}, so the loader ignores preloaded libraries",
            path.display()
        ));
    }
    judge(&path, &image, &ours)
}

fn judge(path: &Path, image: &Image, library: &Image) -> Verdict {
    let path = path.display();
    let refused = yasmin_image::loads(&image.as_program(), &library.as_library());
    let interpreter = image.interpreter.as_deref().unwrap_or_default();
    let is_alone = image.go == Some(Go::Alone) || image.alone == Some(Ok(()));
    if is_alone && image.machine == library.machine {
        return Verdict::Injected;
    }
    match refused {
        Ok(()) if image.go == Some(Go::Bare) => Verdict::ChildrenOnly(format!(
            "{path} is a Go program of a Go that is not known: its network calls go past libc"
        )),
        Ok(()) => Verdict::Accelerated,
        Err(Refusal::Static) => {
            let kind = match image.alone {
                Some(Err(sites::Refusal::Cancels)) => {
                    "statically linked and can cancel threads (pthread_cancel)"
                }
                Some(_) => "statically linked and makes system calls that cannot be diverted",
                None if image.go.is_some() => {
                    "a static Go program that is linked with C, or of a Go that is not known"
                }
                None => "statically linked with glibc",
            };
            Verdict::ChildrenOnly(format!("{path} is {kind}, nothing can be preloaded"))
        }
        Err(Refusal::Machine) => {
            let [theirs, ours] = [image, library].map(|image| elf::name(image.machine));
            Verdict::Never(format!("{path} is built for {theirs}, the library for {ours}"))
        }
        Err(Refusal::NeedsGlibc) => {
            Verdict::Never(format!("{path} is linked with musl, the library needs glibc"))
        }
        Err(Refusal::UnknownLoader) => {
            Verdict::Never(format!("{path} uses an unknown loader, {interpreter}"))
        }
    }
}

/// The binary that runs in the end: interpreters of scripts are followed, `env`, and loaders that are called by name.
fn final_program(path: &Path, arguments: &[OsString]) -> PathBuf {
    let mut path = path.to_owned();
    let mut behind_env = first_program(arguments.iter().map(OsString::as_os_str));
    for _ in 0..MAX_SCRIPTS {
        if begins_another(&path)
            && let Some(next) = behind_env.take()
        {
            path = next;
        }
        let mut head = [0; SHEBANG_BYTES];
        let head = match File::open(&path).and_then(|mut file| file.read(&mut head)) {
            Ok(len) => &head[..len],
            Err(_) => return path,
        };
        if head.starts_with(&object::elf::ELFMAG) {
            return path;
        }
        let Some((interpreter, argument)) = shebang(head) else { return PathBuf::from(SHELL) };
        behind_env = first_program(argument.split(|byte| *byte == b' ').map(OsStr::from_bytes));
        path = PathBuf::from(OsStr::from_bytes(interpreter));
    }
    path
}

/// Whether it becomes the program that its arguments name.
fn begins_another(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    matches!(name, b"env" | b"ld.so")
        || name.starts_with(b"ld-linux")
        || name.starts_with(b"ld-musl-")
}

/// What `env` would run: its first argument that is no option and no assignment.
fn first_program<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Option<PathBuf> {
    let is_program = |word: &&OsStr| {
        let bytes = word.as_bytes();
        !bytes.is_empty() && !bytes.starts_with(b"-") && !bytes.contains(&b'=')
    };
    lookup::find(arguments.into_iter().find(is_program)?).ok()
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
