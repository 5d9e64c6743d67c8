//! A peer that does what it is told: one command a line in, one line of result out.
//!
//! Every command is one call, or a few, on a named object; the result is what the call gave:
//! a number, `ok`, an errno's name, or the events found. Bytes are checked on arrival: each
//! direction of a connection is a `Pattern` with a position, and positions are shared with
//! forked children, so that whoever receives next knows what must come.
//!
//! `yasmin_tests::script::grammar` has all commands with their words.

mod bytes;
mod calls;
mod children;
mod descriptors;
mod exchange;
mod interrupts;
mod look;
mod odd;
mod options;
mod programs;
mod threads;
mod unseen;
mod wait;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use yasmin_tests::pattern::Pattern;
use yasmin_tests::sys::{self, Fd, by_number, errno_name, libc};

/// One direction's bytes and how far they got.
#[derive(Clone, Copy)]
struct Stream {
    pattern: Pattern,
    position: &'static AtomicU64,
    /// What makes it again in another program.
    seed: u64,
    nth: usize,
}

impl Stream {
    fn new(seed: u64, nth: usize, words: &'static [AtomicU64]) -> Self {
        Self { pattern: Pattern::new(seed), position: &words[nth], seed, nth }
    }

    fn at(self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    fn advance(self, len: usize) {
        self.position.fetch_add(len as u64, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy)]
struct Object {
    fd: Fd,
    /// Absent for listeners and epoll sets.
    streams: Option<(Stream, Stream)>,
}

struct Running {
    thread: Arc<AtomicI32>,
    handle: JoinHandle<String>,
}

struct Child {
    pid: i32,
    commands: File,
    results: BufReader<File>,
}

struct Script {
    objects: Mutex<HashMap<String, Object>>,
    running: Mutex<HashMap<String, Running>>,
    children: Mutex<HashMap<String, Child>>,
    words: &'static [AtomicU64],
    words_fd: Fd,
    /// One of them, so that processes that were forked do not take the same ones.
    words_used: &'static AtomicU64,
    /// Where commands come from and results go.
    wires: Mutex<(Fd, Fd)>,
}

const WORDS: usize = 8192;

/// `bare`, a link to this folder, is the same peer with bare system calls of its own. In `script`
/// there is none, so that a library which looks for them finds a program as most are.
const BARE: bool = is_named(env!("CARGO_BIN_NAME"), "bare");

const fn is_named(name: &str, wanted: &str) -> bool {
    let (name, wanted) = (name.as_bytes(), wanted.as_bytes());
    name.len() == wanted.len() && name[0] == wanted[0]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty()
        && let Err(error) = sys::raise_descriptor_limit()
    {
        eprintln!("descriptor limit: {error}");
    }
    let script = match Script::begin(&arguments) {
        Ok(script) => Arc::new(script),
        Err(error) => {
            eprintln!("cannot begin: {error}");
            std::process::exit(1);
        }
    };
    let (commands, results) = *lock(&script.wires);
    serve(&script, &mut BufReader::new(sys::file_of(commands)), &mut sys::file_of(results));
    std::process::exit(0);
}

fn serve(script: &Arc<Script>, input: &mut dyn BufRead, output: &mut dyn Write) {
    for line in input.lines().map_while(Result::ok) {
        let result = execute(script, &line);
        if writeln!(output, "{result}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn execute(script: &Arc<Script>, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match run(script, &words) {
        Ok(text) => text,
        Err(error) => errno_name(&error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(what: &str) -> Error {
    Error::other(format!("script error: {what}"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| wrong(text))
}

fn ok(_: ()) -> String {
    "ok".to_owned()
}

impl Script {
    /// A fresh one, or what another program handed over (see `programs`).
    fn begin(arguments: &[String]) -> Result<Self> {
        if arguments.is_empty() {
            let (words_fd, words) = sys::inheritable_words(WORDS)?;
            return Ok(Self::with(words_fd, words, (0, 1)));
        }
        programs::resume(arguments)
    }

    fn with(words_fd: Fd, words: &'static [AtomicU64], wires: (Fd, Fd)) -> Self {
        Self {
            objects: Mutex::default(),
            running: Mutex::default(),
            children: Mutex::default(),
            words,
            words_fd,
            words_used: &words[WORDS - 2],
            wires: Mutex::new(wires),
        }
    }

    fn object(&self, name: &str) -> Result<Object> {
        lock(&self.objects).get(name).copied().ok_or_else(|| wrong(name))
    }

    fn streams(&self, name: &str) -> Result<(Fd, Stream, Stream)> {
        let object = self.object(name)?;
        // Calls on what is no connection are allowed: they give an errno.
        let last = self.words.len() - 1;
        let none = Stream::new(0, last, self.words);
        let (sends, receives) = object.streams.unwrap_or((none, none));
        Ok((object.fd, sends, receives))
    }

    fn add(&self, name: &str, object: Object) {
        lock(&self.objects).insert(name.to_owned(), object);
    }

    /// The connector's direction has an even seed; `C1` at both ends has the same ones.
    fn connection(&self, name: &str, fd: Fd, connects: bool) -> Object {
        let seed = name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)) * 2;
        let nth = self.words_used.fetch_add(2, Ordering::Relaxed) as usize;
        let up = Stream::new(seed, nth, self.words);
        let down = Stream::new(seed + 1, nth + 1, self.words);
        Object { fd, streams: Some(if connects { (up, down) } else { (down, up) }) }
    }
}

fn run(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["listen", name, family] => listen(script, name, family),
        ["accept", listener, name] => accept(script, listener, name, 0),
        ["accept", listener, name, "nonblock"] => {
            accept(script, listener, name, libc::SOCK_NONBLOCK)
        }
        ["connect", name, ip, port] => connect(script, name, ip, port, 0),
        ["connect", name, ip, port, "nonblock"] => {
            connect(script, name, ip, port, libc::SOCK_NONBLOCK)
        }
        ["send" | "recv" | "whole" | "sendall" | "recvall" | "drain", ..]
        | ["fill" | "brim" | "flood" | "soak", ..]
        | ["urgent" | "badsend" | "badrecv" | "manyparts", ..] => bytes::run(script, words),
        ["shutdown", name, how] => {
            let how = match how {
                "rd" => libc::SHUT_RD,
                "wr" => libc::SHUT_WR,
                "rdwr" => libc::SHUT_RDWR,
                other => return Err(wrong(other)),
            };
            sys::shutdown(script.object(name)?.fd, how).map(ok)
        }
        ["close", name] => {
            let object = lock(&script.objects).remove(name).ok_or_else(|| wrong(name))?;
            sys::close(object.fd).map(ok)
        }
        ["closebynumber", name] => {
            let object = lock(&script.objects).remove(name).ok_or_else(|| wrong(name))?;
            by_number::close(object.fd).map(ok)
        }
        // A file takes the lowest free number, and is read.
        ["readfile"] => {
            let file = File::open("/dev/zero")?;
            let mut data = [1; 100];
            let len = sys::read(file.as_raw_fd(), &mut data)?;
            Ok(format!("{} {}", file.as_raw_fd(), data[..len].iter().filter(|b| **b == 0).count()))
        }
        ["forget", name] => Ok(format!("{}", lock(&script.objects).remove(name).is_some())),
        // Leaves the name, to be used after.
        ["closefd", name] => sys::close(script.object(name)?.fd).map(ok),
        ["dup" | "dup2" | "dup3" | "dupfd" | "cloexec" | "closesonexec" | "blocks", ..]
        | ["unixlisten" | "unixconnect" | "unixaccept", ..]
        | ["pair" | "give" | "take" | "lowest" | "limit" | "number" | "select", ..]
        | ["closerange" | "closefrom" | "closeall", ..] => descriptors::run(script, words),
        ["nonblock", name, on] => sys::set_nonblocking(script.object(name)?.fd, on == "1").map(ok),
        ["set", name, option, value] => {
            options::set(script.object(name)?.fd, option, number(value)?)
        }
        ["get", name, option] => options::get(script.object(name)?.fd, option),
        ["names", name] => {
            let fd = script.object(name)?.fd;
            Ok(format!("{} {}", sys::getsockname(fd)?, sys::getpeername(fd)?))
        }
        ["counts", name] => sys::tcp_counts(script.object(name)?.fd)
            .map(|[acked, received, sent]| format!("{acked} {received} {sent}")),
        ["state", name] => sys::tcp_state(script.object(name)?.fd).map(|state| state.to_string()),
        ["unread", name] => sys::unread(script.object(name)?.fd).map(|len| len.to_string()),
        ["unsent", name] => sys::unacknowledged(script.object(name)?.fd).map(|len| len.to_string()),
        ["atmark", name] => sys::at_mark(script.object(name)?.fd).map(|at| at.to_string()),
        ["sigpipe", "default"] => {
            sys::interrupts::default_signal(libc::SIGPIPE);
            Ok("ok".to_owned())
        }
        ["handler" | "handled" | "tryhandlers" | "blocked" | "pending", ..]
        | ["ppoll" | "pselect" | "eppwait" | "eppwait2", ..] => interrupts::run(script, words),
        ["exit", status] => std::process::exit(number(status)?),
        ["look" | "await" | "awaitunread" | "selectnow" | "drainnow", ..] => {
            look::run(script, words)
        }
        [
            "poll" | "epoll" | "epadd" | "epmod" | "epdel" | "epwait" | "epinorder" | "tells"
            | "causes" | "caused",
            ..,
        ] => wait::run(script, words),
        ["pairs", one, other] => pair(script, one, other),
        [
            "async" | "asleep" | "waiting" | "kick" | "nudge" | "join" | "closing" | "opening"
            | "astray",
            ..,
        ] => threads::run(script, words),
        ["fork" | "in" | "user" | "tell" | "hear" | "kill" | "reap" | "leave", ..] => {
            children::run(script, words)
        }
        ["exec" | "become" | "start" | "spawn" | "vspawn" | "system", ..] => {
            programs::run(script, words)
        }
        ["pingpong" | "gather" | "trickle", ..] => exchange::run(script, words),
        ["barepoll" | "bareppoll" | "bareselect" | "bareepwait" | "aiopoll", ..] if BARE => {
            unseen::run(script, words)
        }
        ["hold" | "announce" | "queue" | "signalled" | "vforked" | "badcall" | "unixlink", ..] => {
            odd::run(script, words)
        }
        _ => calls::run(script, words),
    }
}

fn accept(script: &Script, listener: &str, name: &str, flags: i32) -> Result<String> {
    let (fd, _) = sys::accept(script.object(listener)?.fd, flags)?;
    script.add(name, script.connection(name, fd, false));
    Ok("ok".to_owned())
}

/// Both ends of a connection, and so many messages over it that it is busy.
fn pair(script: &Script, one: &str, other: &str) -> Result<String> {
    let listener = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::bind(listener, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    sys::listen(listener, 1)?;
    let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::connect(fd, sys::getsockname(listener)?)?;
    let (accepted, _) = sys::accept(listener, 0)?;
    sys::close(listener)?;
    let mut byte = [0];
    for _ in 0..64 {
        for (from, to) in [(fd, accepted), (accepted, fd)] {
            sys::write(from, b"x")?;
            sys::read(to, &mut byte)?;
        }
    }
    script.add(one, Object { fd, streams: None });
    script.add(other, Object { fd: accepted, streams: None });
    Ok("ok".to_owned())
}

fn listen(script: &Script, name: &str, family: &str) -> Result<String> {
    let any: IpAddr = match family {
        "v4" => Ipv4Addr::UNSPECIFIED.into(),
        "v6" => Ipv6Addr::UNSPECIFIED.into(),
        other => return Err(wrong(other)),
    };
    let family = if any.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = sys::socket(family, libc::SOCK_CLOEXEC)?;
    sys::bind(fd, SocketAddr::new(any, 0))?;
    sys::listen(fd, 1024)?;
    script.add(name, Object { fd, streams: None });
    Ok(sys::getsockname(fd)?.port().to_string())
}

fn connect(script: &Script, name: &str, ip: &str, port: &str, flags: i32) -> Result<String> {
    let ip: IpAddr = number(ip)?;
    // A second connect of the same name is one on the same socket.
    let old = lock(&script.objects).get(name).copied();
    let fd = match old {
        Some(object) => object.fd,
        None => {
            let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
            let fd = sys::socket(family, libc::SOCK_CLOEXEC | flags)?;
            script.add(name, script.connection(name, fd, true));
            fd
        }
    };
    sys::connect(fd, SocketAddr::new(ip, number(port)?)).map(ok)
}
