//! Who has left, in a file beside the memory's: a broker that starts again goes on with it.
//!
//! ```text
//! yasmin-left 1
//! guest web 4711 88123
//! guest db - -
//! pair web cache
//! ```
//!
//! Behind a guest's name stands its QEMU: process and when that began. Who has another one by the
//! time that this is read, or gets one, is not who left.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NAME: &str = "left";
const HEAD: &str = "yasmin-left 1";

/// More is not read: nobody has so many guests.
const BYTES_MAX: u64 = 1 << 20;

/// A QEMU, by its process and the clock ticks since boot at which that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qemu {
    pub pid: u32,
    pub began: u64,
}

impl Qemu {
    /// The process of this number. `None`: there is none that can be seen.
    pub fn of_process(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets can be anything.
        let (_, rest) = stat.rsplit_once(')')?;
        Some(Self { pid, began: rest.split_whitespace().nth(19)?.parse().ok()? })
    }

    /// Who runs it (its effective user).
    pub fn user(self) -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_whitespace().nth(1)?.parse().ok()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Guest { name: String, qemu: Option<Qemu> },
    Pair([String; 2]),
}

impl Kept {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut name = || words.next().filter(|word| !word.is_empty()).map(str::to_owned);
        let kept = match kind {
            "guest" => {
                let (name, pid, began) = (name()?, name()?, name()?);
                let qemu = match (&*pid, &*began) {
                    ("-", "-") => None,
                    _ => Some(Qemu { pid: pid.parse().ok()?, began: began.parse().ok()? }),
                };
                Self::Guest { name, qemu }
            }
            "pair" => Self::Pair([name()?, name()?]),
            _ => return None,
        };
        words.next().is_none().then_some(kept)
    }

    fn line(&self) -> String {
        match self {
            Self::Guest { name, qemu: Some(Qemu { pid, began }) } => {
                format!("guest {name} {pid} {began}\n")
            }
            Self::Guest { name, qemu: None } => format!("guest {name} - -\n"),
            Self::Pair([a, b]) => format!("pair {a} {b}\n"),
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// Who had left when a broker last wrote it down.
///
/// # Errors
/// The file is not one that this broker's user wrote, and wrote whole.
pub fn read(folder: &Path) -> io::Result<Vec<Kept>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let opened =
        OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(folder.join(NAME));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let meta = rustix::fs::fstat(&file)?;
    let is_file = rustix::fs::FileType::from_raw_mode(meta.st_mode).is_file();
    if !is_file || meta.st_uid != rustix::process::geteuid().as_raw() || meta.st_mode & 0o022 != 0 {
        return Err(bad("others could have written it"));
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    let lines = text.strip_prefix(HEAD).and_then(|rest| rest.strip_prefix('\n'));
    let lines = lines.filter(|lines| lines.is_empty() || lines.ends_with('\n'));
    let kept = lines.and_then(|lines| lines.lines().map(Kept::parse).collect());
    kept.ok_or_else(|| bad("it is of another version, or damaged"))
}

/// # Errors
/// The file system's; what was written before stays then.
pub fn write(folder: &Path, kept: &[Kept]) -> io::Result<()> {
    let (path, next) = (folder.join(NAME), folder.join(".left"));
    if kept.is_empty() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let _ = std::fs::remove_file(&next);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    let lines: String = kept.iter().map(Kept::line).collect();
    file.write_all(format!("{HEAD}\n{lines}").as_bytes())?;
    std::fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("yasmin-left-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = folder("again");
        assert_eq!(read(&folder).unwrap(), []);
        let qemu = Qemu::of_process(std::process::id());
        assert!(qemu.is_some());
        let kept = [
            Kept::Guest { name: "web.1".into(), qemu },
            Kept::Guest { name: "db".into(), qemu: None },
            Kept::Pair(["web.1".into(), "cache".into()]),
        ];
        for part in [&kept[..], &kept[1..2], &[]] {
            write(&folder, part).unwrap();
            assert_eq!(read(&folder).unwrap(), part);
        }
        assert!(!folder.join(NAME).exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_others_or_nobody_wrote_is_refused() {
        let folder = folder("bad");
        let path = folder.join(NAME);
        for text in [
            "",
            "yasmin-left 2\n",
            "yasmin-left 1",
            "yasmin-left 1\nguest web 1 2",
            "yasmin-left 1\nguest web 1\n",
            "yasmin-left 1\nguest web 1 -\n",
            "yasmin-left 1\nguest  1 2\n",
            "yasmin-left 1\nguest web 4294967296 2\n",
            "yasmin-left 1\npair web\n",
            "yasmin-left 1\npair web db x\n",
            "yasmin-left 1\nsomebody web\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&folder).is_err(), "{text:?}");
        }
        std::fs::write(&path, "yasmin-left 1\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(read(&folder).unwrap(), []);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(read(&folder).is_err());
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        assert!(read(&folder).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
