//! How each server is built and started.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::find_or_say;
use crate::redis;

/// A program and its arguments. It says `port NUMBER` when it listens, or listens on a port that
/// it was given.
pub struct Server {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub port: Option<u16>,
}

impl Server {
    fn new(program: PathBuf, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Self { program, arguments, port: None }
    }
}

/// A file beside this package's tests.
pub(super) fn source(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join(name).display().to_string()
}

/// Runs a compiler, which must do its work.
#[track_caller]
fn compile(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

pub fn tokio(peers: &Path, kind: &str) -> Option<Server> {
    Some(Server::new(peers.join("tokio-echo"), &[kind]))
}

pub fn engine(folder: &Path) -> Option<Server> {
    let program = folder.join("engine");
    let compiler = find_or_say("cc")?;
    let source = source("runtimes/engine.c");
    compile(Command::new(compiler).args(["-O2", "-pthread", &source, "-o"]).arg(&program));
    Some(Server::new(program, &["2"]))
}

pub fn asio(folder: &Path, threads: &str) -> Option<Server> {
    let program = folder.join("asio");
    let compiler = find_or_say("c++")?;
    if !Path::new("/usr/include/asio.hpp").is_file() {
        eprintln!("skipped: libasio-dev is not installed");
        return None;
    }
    let source = source("runtimes/asio.cpp");
    let options = ["-std=c++17", "-O1", "-pthread", "-DASIO_STANDALONE", &source, "-o"];
    compile(Command::new(compiler).args(options).arg(&program));
    Some(Server::new(program, &[threads]))
}

/// A JDK of this release or later: the one on the path, or one of /usr/lib/jvm.
fn jdk(release: u32) -> Option<PathBuf> {
    let path = find_or_say("javac")?.canonicalize().ok()?;
    let first = path.parent()?.to_owned();
    let others = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let found = std::iter::once(first)
        .chain(others.map(|one| one.path().join("bin")))
        .find(|bin| release_of(bin).is_some_and(|has| has >= release));
    if found.is_none() {
        eprintln!("skipped: there is no JDK {release} or later");
    }
    found
}

fn release_of(bin: &Path) -> Option<u32> {
    if !bin.join("javac").is_file() {
        return None;
    }
    let text = std::fs::read_to_string(bin.join("../release")).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    version.split(['.', '"']).next()?.parse().ok()
}

pub fn java(folder: &Path, class: &str, release: u32) -> Option<Server> {
    let bin = jdk(release)?;
    let source = source(&format!("runtimes/{class}.java"));
    compile(Command::new(bin.join("javac")).arg("-d").arg(folder).arg(source));
    let at = folder.display().to_string();
    Some(Server::new(bin.join("java"), &["-XX:+UseSerialGC", "-cp", &at, class]))
}

pub fn erlang(how: &str) -> Option<Server> {
    let escript = find_or_say("escript")?;
    Some(Server::new(escript, &[&source("runtimes/echo.escript"), how]))
}

pub fn mono(folder: &Path) -> Option<Server> {
    let (mono, compiler) = (find_or_say("mono")?, find_or_say("mcs")?);
    let program = folder.join("echo.exe");
    let out = format!("-out:{}", program.display());
    compile(Command::new(compiler).arg(out).arg(source("runtimes/Echo.cs")));
    Some(Server::new(mono, &[&program.display().to_string()]))
}

/// A Python that has grpcio: `YASMIN_PYTHON`, or the one on the path.
pub(super) fn python_with_grpc() -> Option<PathBuf> {
    let python = match std::env::var_os("YASMIN_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => find_or_say("python3")?,
    };
    let imports = Command::new(&python).args(["-c", "import grpc.aio"]).output().ok()?;
    if !imports.status.success() {
        eprintln!("skipped: {} has no grpcio", python.display());
        return None;
    }
    Some(python)
}

pub fn grpc(how: &str) -> Option<Server> {
    let python = python_with_grpc()?;
    Some(Server::new(python, &[&source("runtimes/grpc_echo.py"), "serve", how]))
}

pub fn node() -> Option<Server> {
    Some(Server::new(find_or_say("node")?, &[&source("languages/echo.js"), "listen"]))
}

pub fn go(folder: &Path) -> Option<Server> {
    find_or_say("gcc")?;
    Some(Server::new(go_echo(folder, "1")?, &["listen"]))
}

/// Started by a program that has the library, as it has no loader.
pub fn static_go(folder: &Path) -> Option<Server> {
    let program = go_echo(folder, "0")?;
    Some(Server::new(PathBuf::from("/usr/bin/env"), &[&program.display().to_string(), "listen"]))
}

fn go_echo(folder: &Path, with_c: &str) -> Option<PathBuf> {
    let program = folder.join("go-echo");
    let compiler = find_or_say("go")?;
    let mut command = Command::new(compiler);
    command.args(["build", "-o"]).arg(&program).arg(source("languages/echo.go"));
    command.current_dir(folder).env("GO111MODULE", "off").env("CGO_ENABLED", with_c);
    compile(&mut command);
    Some(program)
}

pub fn redis(folder: &Path) -> Option<Server> {
    let port = crate::netns::free_port();
    let arguments = redis::words(port, &folder.display().to_string(), &redis::IN_MEMORY);
    Some(Server { program: find_or_say("redis-server")?, arguments, port: Some(port) })
}
