//! A peer that does what it is told: one command a line in, one line of result out.
//!
//! Long because it is a list of commands, each a few lines; there is nothing to hide behind
//! another file's name. Every command is one call, or a few, on a named object; the result is what the call gave:
//! a number, `ok`, an errno's name, or the events found. Bytes are checked on arrival: each
//! direction of a connection is a `Pattern` with a position, and positions are shared with
//! forked children, so that whoever receives next knows what must come.
//!
//! ```text
//! listen L v4 | accept L C | connect C ADDR PORT [nonblock] | close C | shutdown C wr
//! send C 1000 [more+dontwait] [FORM] | recv C 1000 [peek] [FORM] | sendall | recvall | drain
//! poll C in+out 100 | epoll E | epadd E C in+et | epmod | epdel E C | epwait E 100
//! set C nodelay 1 | get C nodelay | names C | state C | unread C | unsent C | atmark C
//! async T COMMAND | asleep T | kick T | join T        threads
//! fork P | in P COMMAND | reap P                      children
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use yasmin_tests::pattern::Pattern;
use yasmin_tests::sys::{self, Fd, Forked, errno_name, libc};

/// One direction's bytes and how far they got.
#[derive(Clone, Copy)]
struct Stream {
    pattern: Pattern,
    position: &'static AtomicU64,
}

impl Stream {
    fn new(seed: u64, nth: usize, words: &'static [AtomicU64]) -> Self {
        Self { pattern: Pattern::new(seed), position: &words[nth] }
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
    words_used: AtomicU64,
}

fn main() {
    let words = match sys::shared_words(8192) {
        Ok(words) => words,
        Err(error) => {
            eprintln!("no shared memory: {error}");
            std::process::exit(1);
        }
    };
    let script = Arc::new(Script {
        objects: Mutex::default(),
        running: Mutex::default(),
        children: Mutex::default(),
        words,
        words_used: AtomicU64::new(0),
    });
    if let Err(error) = sys::raise_descriptor_limit() {
        eprintln!("descriptor limit: {error}");
    }
    serve(&script, &mut std::io::stdin().lock(), &mut std::io::stdout().lock());
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
        ["accept", listener, name] => {
            let (fd, _) = sys::accept(script.object(listener)?.fd, 0)?;
            script.add(name, script.connection(name, fd, false));
            Ok("ok".to_owned())
        }
        ["connect", name, ip, port] => connect(script, name, ip, port, 0),
        ["connect", name, ip, port, "nonblock"] => {
            connect(script, name, ip, port, libc::SOCK_NONBLOCK)
        }
        ["send", name, len] => send(script, name, len, "", "send"),
        ["send", name, len, flags] => send(script, name, len, flags, "send"),
        ["send", name, len, flags, form] => send(script, name, len, flags, form),
        ["recv", name, len] => recv(script, name, len, "", "recv"),
        ["recv", name, len, flags] => recv(script, name, len, flags, "recv"),
        ["recv", name, len, flags, form] => recv(script, name, len, flags, form),
        ["sendall", name, len] => send_all(script, name, number(len)?),
        ["recvall", name, len] => receive_all(script, name, number(len)?),
        ["drain", name] => receive_all(script, name, u64::MAX),
        ["fill", name] => fill(script, name),
        ["urgent", name] => {
            let (fd, ..) = script.streams(name)?;
            sys::send(fd, b"!", libc::MSG_OOB).map(|sent| sent.to_string())
        }
        ["badsend", name] => {
            sys::bad_address(script.object(name)?.fd, true, 100).map(|sent| sent.to_string())
        }
        ["badrecv", name] => {
            sys::bad_address(script.object(name)?.fd, false, 100).map(|len| len.to_string())
        }
        ["manyparts", name, count] => {
            let (fd, ..) = script.streams(name)?;
            let parts = vec![&b"x"[..]; number(count)?];
            let sent =
                sys::sendmsg(fd, &parts, 0).map_or_else(|e| errno_name(&e), |n| n.to_string());
            let wrote = sys::writev(fd, &parts).map_or_else(|e| errno_name(&e), |n| n.to_string());
            Ok(format!("{sent} {wrote}"))
        }
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
        // Leaves the name, to be used after.
        ["closefd", name] => sys::close(script.object(name)?.fd).map(ok),
        ["dup", name, copy] => {
            let object = script.object(name)?;
            let fd = sys::dup(object.fd)?;
            script.add(copy, Object { fd, ..object });
            Ok("ok".to_owned())
        }
        // `onto` becomes a copy of `name`; what it was is closed.
        ["dup2", name, onto] => {
            let (object, old) = (script.object(name)?, script.object(onto)?);
            let fd = sys::dup2(object.fd, old.fd)?;
            script.add(onto, Object { fd, ..object });
            Ok("ok".to_owned())
        }
        ["nonblock", name, on] => sys::set_nonblocking(script.object(name)?.fd, on == "1").map(ok),
        ["set", name, option, value] => set(script.object(name)?.fd, option, number(value)?),
        ["get", name, option] => get(script.object(name)?.fd, option),
        ["names", name] => {
            let fd = script.object(name)?.fd;
            Ok(format!("{} {}", sys::getsockname(fd)?, sys::getpeername(fd)?))
        }
        ["state", name] => sys::tcp_state(script.object(name)?.fd).map(|state| state.to_string()),
        ["unread", name] => sys::unread(script.object(name)?.fd).map(|len| len.to_string()),
        ["unsent", name] => sys::unacknowledged(script.object(name)?.fd).map(|len| len.to_string()),
        ["atmark", name] => sys::at_mark(script.object(name)?.fd).map(|at| at.to_string()),
        ["sigpipe", "default"] => {
            sys::default_signal(libc::SIGPIPE);
            Ok("ok".to_owned())
        }
        ["handler", how] => sys::handle_signal(libc::SIGUSR1, how == "restart").map(ok),
        ["exit", status] => std::process::exit(number(status)?),
        ["poll" | "epoll" | "epadd" | "epmod" | "epdel" | "epwait", ..] => wait(script, words),
        ["async" | "asleep" | "kick" | "join", ..] => threads(script, words),
        ["fork" | "in" | "reap", ..] => children(script, words),
        _ => Err(wrong(&words.join(" "))),
    }
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

// ---- bytes ----

fn flags_of(text: &str) -> Result<i32> {
    let mut flags = 0;
    for word in text.split('+').filter(|word| !word.is_empty() && *word != "-") {
        flags |= match word {
            "peek" => libc::MSG_PEEK,
            "waitall" => libc::MSG_WAITALL,
            "dontwait" => libc::MSG_DONTWAIT,
            "trunc" => libc::MSG_TRUNC,
            "oob" => libc::MSG_OOB,
            "more" => libc::MSG_MORE,
            "nosignal" => libc::MSG_NOSIGNAL,
            other => return Err(wrong(other)),
        };
    }
    Ok(flags)
}

fn send(script: &Script, name: &str, len: &str, flags: &str, form: &str) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let flags = flags_of(flags)?;
    let mut data = vec![0; number(len)?];
    stream.pattern.fill(stream.at(), &mut data);
    let half = data.len() / 2;
    let parts = [&data[..half], &data[half..]];
    let sent = match form {
        "send" => sys::send(fd, &data, flags),
        "write" => sys::write(fd, &data),
        "writev" => sys::writev(fd, &parts),
        "sendto" => sys::sendto(fd, &data, flags, None),
        // TCP ignores the address of a connected socket.
        "sendtoaddress" => {
            let nowhere = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 1).into(), 9);
            sys::sendto(fd, &data, flags, Some(nowhere))
        }
        "sendmsg" => sys::sendmsg(fd, &parts, flags),
        "sendmmsg" => sys::sendmmsg(fd, &parts, flags).map(|sent| sent.iter().sum()),
        "sendmmsglens" => {
            let lens = sys::sendmmsg(fd, &parts, flags)?;
            stream.advance(lens.iter().sum());
            return Ok(format!("{lens:?}"));
        }
        "sendfile" => {
            let file = sys::anonymous_file()?;
            sys::write(file, &data)?;
            let sent = sys::sendfile(fd, file, 0, data.len());
            sys::close(file)?;
            sent
        }
        "splice" => {
            let (read_end, write_end) = sys::pipe()?;
            sys::write(write_end, &data)?;
            let sent = sys::splice(read_end, fd, data.len(), 0);
            sys::close(read_end)?;
            sys::close(write_end)?;
            sent
        }
        other => return Err(wrong(other)),
    }?;
    stream.advance(sent);
    Ok(sent.to_string())
}

fn recv(script: &Script, name: &str, len: &str, flags: &str, form: &str) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    let flags = flags_of(flags)?;
    let mut data = vec![0; number(len)?];
    let half = data.len() / 2;
    let (one, two) = data.split_at_mut(half);
    let got = match form {
        "recv" => sys::recv(fd, &mut data, flags),
        "read" => sys::read(fd, &mut data),
        "readv" => sys::readv(fd, &mut [one, two]),
        "recvfrom" => sys::recvfrom(fd, &mut data, flags),
        "recvmsg" => sys::recvmsg(fd, &mut [one, two], flags),
        // Two messages; says how many there were and how long each was.
        "recvmmsg" => {
            let lens = sys::recvmmsg(fd, &mut [one, two], flags)?;
            if flags & libc::MSG_PEEK == 0 && lens.iter().any(|len| *len > 0) {
                let first = lens[0];
                stream.pattern.check(stream.at(), &data[..first]).map_err(Error::other)?;
                let second = lens.get(1).copied().unwrap_or(0);
                let at = stream.at() + first as u64;
                let there = &data[half..half + second];
                stream.pattern.check(at, there).map_err(Error::other)?;
                stream.advance(first + second);
            }
            return Ok(format!("{lens:?}"));
        }
        "splice" => {
            let (read_end, write_end) = sys::pipe()?;
            let moved = sys::splice(fd, write_end, data.len(), 0)?;
            let got = sys::read(read_end, &mut data[..moved])?;
            sys::close(read_end)?;
            sys::close(write_end)?;
            Ok(got)
        }
        other => return Err(wrong(other)),
    }?;
    if flags & libc::MSG_OOB != 0 {
        return Ok(format!("{got} {:?}", String::from_utf8_lossy(&data[..got])));
    }
    let truncates = flags & libc::MSG_TRUNC != 0;
    if !truncates && let Err(mismatch) = stream.pattern.check(stream.at(), &data[..got]) {
        return Ok(format!("{got} WRONG: {mismatch}"));
    }
    if flags & libc::MSG_PEEK == 0 {
        stream.advance(got);
    }
    Ok(got.to_string())
}

fn send_all(script: &Script, name: &str, len: usize) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let mut data = vec![0; len];
    stream.pattern.fill(stream.at(), &mut data);
    let mut done = 0;
    while done < len {
        match sys::send(fd, &data[done..], libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                stream.advance(sent);
                done += sent;
            }
            Err(error) => return Ok(format!("{done} then {}", errno_name(&error))),
        }
    }
    Ok(done.to_string())
}

fn receive_all(script: &Script, name: &str, len: u64) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    let mut buffer = vec![0; 128 << 10];
    let mut done = 0;
    while done < len {
        let room = buffer.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
        match sys::recv(fd, &mut buffer[..room], 0) {
            Ok(0) => return Ok(format!("{done} then eof")),
            Ok(got) => {
                if let Err(mismatch) = stream.pattern.check(stream.at(), &buffer[..got]) {
                    return Ok(format!("{done} then WRONG: {mismatch}"));
                }
                stream.advance(got);
                done += got as u64;
            }
            Err(error) => return Ok(format!("{done} then {}", errno_name(&error))),
        }
    }
    Ok(done.to_string())
}

/// Sends until EAGAIN comes and comes again after a wait for room that nobody makes.
fn fill(script: &Script, name: &str) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let mut data = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        stream.pattern.fill(stream.at(), &mut data);
        match sys::send(fd, &data, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                stream.advance(sent);
                total += sent;
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if sys::poll_events(fd, libc::POLLOUT, 100)? == 0 {
                    return Ok(total.to_string());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

// ---- options ----

fn option_of(name: &str) -> Result<(i32, i32)> {
    let socket = libc::SOL_SOCKET;
    Ok(match name {
        "nodelay" => (libc::SOL_TCP, libc::TCP_NODELAY),
        "cork" => (libc::SOL_TCP, libc::TCP_CORK),
        "maxseg" => (libc::SOL_TCP, libc::TCP_MAXSEG),
        "keepidle" => (libc::SOL_TCP, libc::TCP_KEEPIDLE),
        "usertimeout" => (libc::SOL_TCP, libc::TCP_USER_TIMEOUT),
        "keepalive" => (socket, libc::SO_KEEPALIVE),
        "lowat" => (socket, libc::SO_RCVLOWAT),
        "error" => (socket, libc::SO_ERROR),
        "type" => (socket, libc::SO_TYPE),
        "domain" => (socket, libc::SO_DOMAIN),
        "protocol" => (socket, libc::SO_PROTOCOL),
        "listening" => (socket, libc::SO_ACCEPTCONN),
        "rcvbuf" => (socket, libc::SO_RCVBUF),
        "sndbuf" => (socket, libc::SO_SNDBUF),
        "oobinline" => (socket, libc::SO_OOBINLINE),
        "reuseaddr" => (socket, libc::SO_REUSEADDR),
        "priority" => (socket, libc::SO_PRIORITY),
        other => return Err(wrong(other)),
    })
}

fn set(fd: Fd, option: &str, value: i32) -> Result<String> {
    match option {
        "rcvtimeo" => sys::set_timeout(fd, libc::SO_RCVTIMEO, value.into()),
        "sndtimeo" => sys::set_timeout(fd, libc::SO_SNDTIMEO, value.into()),
        "linger" => sys::set_linger(fd, (value >= 0).then_some(value)),
        other => {
            let (level, option) = option_of(other)?;
            sys::set_int(fd, level, option, value)
        }
    }
    .map(ok)
}

fn get(fd: Fd, option: &str) -> Result<String> {
    let (level, number) = option_of(option)?;
    let value = sys::get_int(fd, level, number)?;
    if option == "error" && value != 0 {
        return Ok(errno_name(&Error::from_raw_os_error(value)));
    }
    Ok(value.to_string())
}

// ---- waiting ----

const EVENTS: [(&str, u32); 9] = [
    ("in", libc::EPOLLIN as u32),
    ("pri", libc::EPOLLPRI as u32),
    ("out", libc::EPOLLOUT as u32),
    ("err", libc::EPOLLERR as u32),
    ("hup", libc::EPOLLHUP as u32),
    ("rdhup", libc::EPOLLRDHUP as u32),
    ("oneshot", libc::EPOLLONESHOT as u32),
    ("et", libc::EPOLLET as u32),
    ("exclusive", libc::EPOLLEXCLUSIVE as u32),
];

fn events_of(text: &str) -> Result<u32> {
    let mut events = 0;
    for word in text.split('+').filter(|word| *word != "-") {
        let known = EVENTS.iter().find(|(name, _)| *name == word);
        events |= known.ok_or_else(|| wrong(word))?.1;
    }
    Ok(events)
}

fn event_names(events: u32) -> String {
    let names: Vec<&str> =
        EVENTS.iter().filter(|(_, bit)| events & bit != 0).map(|(name, _)| *name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join("+") }
}

fn wait(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["poll", name, events, timeout_ms] => {
            let fd = script.object(name)?.fd;
            let found = sys::poll_events(fd, events_of(events)? as i16, number(timeout_ms)?)?;
            Ok(event_names(u32::from(found.cast_unsigned())))
        }
        ["epoll", name] => {
            script.add(name, Object { fd: sys::epoll_create()?, streams: None });
            Ok("ok".to_owned())
        }
        ["epdel", set, name] => {
            let (set, fd) = (script.object(set)?.fd, script.object(name)?.fd);
            sys::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, 0, 0).map(ok)
        }
        [how @ ("epadd" | "epmod"), set, name, events] => {
            let (set, fd) = (script.object(set)?.fd, script.object(name)?.fd);
            let operation = if how == "epadd" { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
            let mut data = [0; 8];
            let len = name.len().min(8);
            data[..len].copy_from_slice(&name.as_bytes()[..len]);
            let data = u64::from_le_bytes(data);
            sys::epoll_ctl(set, operation, fd, events_of(events)?, data).map(ok)
        }
        ["epwait", set, timeout_ms] => epoll_wait(script, set, timeout_ms, 64),
        ["epwait", set, timeout_ms, max] => epoll_wait(script, set, timeout_ms, number(max)?),
        _ => Err(wrong(&words.join(" "))),
    }
}

fn epoll_wait(script: &Script, set: &str, timeout_ms: &str, max: usize) -> Result<String> {
    let found = sys::epoll_wait(script.object(set)?.fd, max, number(timeout_ms)?)?;
    let mut texts: Vec<String> = found
        .into_iter()
        .map(|(events, data)| {
            let bytes = data.to_le_bytes();
            let name = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
            format!("{name}:{}", event_names(events))
        })
        .collect();
    texts.sort();
    Ok(if texts.is_empty() { "nothing".to_owned() } else { texts.join(" ") })
}

// ---- threads ----

fn threads(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["async", name, ref command @ ..] => {
            let thread = Arc::new(AtomicI32::new(0));
            let (own, command) = (thread.clone(), command.join(" "));
            let script_there = script.clone();
            let handle = std::thread::spawn(move || {
                own.store(sys::thread_id(), Ordering::SeqCst);
                execute(&script_there, &command)
            });
            lock(&script.running).insert(name.to_owned(), Running { thread, handle });
            Ok("ok".to_owned())
        }
        ["asleep", name] => {
            let thread = thread_of(script, name)?;
            let begun = Instant::now();
            // Asleep for several looks in a row: not just between two instructions.
            let mut looks = 0;
            while looks < 5 {
                let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
                let sleeps = stat.is_ok_and(|stat| {
                    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
                });
                looks = if sleeps { looks + 1 } else { 0 };
                if begun.elapsed() > Duration::from_secs(5) {
                    return Ok("awake".to_owned());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok("asleep".to_owned())
        }
        ["kick", name] => sys::kill_thread(thread_of(script, name)?, libc::SIGUSR1).map(ok),
        ["join", name] => {
            let running = lock(&script.running).remove(name).ok_or_else(|| wrong(name))?;
            Ok(running.handle.join().unwrap_or_else(|_| "panicked".to_owned()))
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

fn thread_of(script: &Script, name: &str) -> Result<i32> {
    let thread = lock(&script.running).get(name).map(|running| running.thread.clone());
    let thread = thread.ok_or_else(|| wrong(name))?;
    loop {
        match thread.load(Ordering::SeqCst) {
            0 => std::thread::yield_now(),
            number => return Ok(number),
        }
    }
}

// ---- children ----

fn children(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["fork", name] => {
            let (commands_in, commands_out) = sys::pipe()?;
            let (results_in, results_out) = sys::pipe()?;
            match sys::fork()? {
                Forked::Child => {
                    sys::close(commands_out)?;
                    sys::close(results_in)?;
                    serve(
                        script,
                        &mut BufReader::new(sys::file_of(commands_in)),
                        &mut sys::file_of(results_out),
                    );
                    sys::exit_child(0)
                }
                Forked::Parent { child } => {
                    sys::close(commands_in)?;
                    sys::close(results_out)?;
                    let child = Child {
                        pid: child,
                        commands: sys::file_of(commands_out),
                        results: BufReader::new(sys::file_of(results_in)),
                    };
                    lock(&script.children).insert(name.to_owned(), child);
                    Ok("ok".to_owned())
                }
            }
        }
        ["in", name, ref command @ ..] => {
            let mut children = lock(&script.children);
            let child = children.get_mut(name).ok_or_else(|| wrong(name))?;
            writeln!(child.commands, "{}", command.join(" "))?;
            child.commands.flush()?;
            let mut line = String::new();
            child.results.read_line(&mut line)?;
            Ok(if line.is_empty() { "gone".to_owned() } else { line.trim_end().to_owned() })
        }
        ["reap", name] => {
            let child = lock(&script.children).remove(name).ok_or_else(|| wrong(name))?;
            drop(child.commands);
            sys::wait_child(child.pid).map(|status| status.to_string())
        }
        _ => Err(wrong(&words.join(" "))),
    }
}
