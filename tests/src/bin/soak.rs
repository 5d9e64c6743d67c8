//! Waits in random interleavings: `soak listen CONNECTIONS`, or
//! `soak connect ADDRESS PORT CONNECTIONS`; both then take `SEED BYTES WAITERS`.
//!
//! Both ends send BYTES on each connection from two threads, in random pieces, and check what
//! they receive. WAITERS threads sleep on each of two epoll sets without a timeout, and read
//! what they are told of; they change registrations (level, edge, one-shot) and move
//! connections from set to set as they go; another thread polls and reads, too. So a lost
//! wake-up is a hang. With one waiter nothing is moved and nobody else reads: then wake-ups
//! that find nothing are counted. Says `done EVENTS EMPTY` at the end.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yasmin_tests::pattern::Pattern;
use yasmin_tests::sys::{self, Fd, libc};

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const PIECE_MAX: u64 = 20_000;
const END: u64 = u64::MAX;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// Who holds it reads, and changes the registration.
struct Reader {
    position: u64,
    set: usize,
    mode: u32,
    is_over: bool,
}

struct Connection {
    fd: Fd,
    sends: Pattern,
    receives: Pattern,
    reader: Mutex<Reader>,
    sent: Mutex<u64>,
}

struct Soak {
    connections: Vec<Connection>,
    sets: [Fd; 2],
    bytes: u64,
    moves: bool,
    /// Of 16 waits, how many take no time. While a thread sleeps on a set, no ring opens.
    looks: u64,
    open: AtomicUsize,
    is_over: AtomicBool,
    /// Written at the end: wakes everybody.
    end: Fd,
    events: AtomicU64,
    empty: AtomicU64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number<T: std::str::FromStr>(words: &[String], at: usize) -> Result<T> {
    let word = words.get(at).ok_or_else(|| Error::other("too few arguments"))?;
    word.parse().map_err(|_| Error::other(format!("what is {word}?")))
}

fn run(words: &[String]) -> Result<()> {
    let listens = words.first().is_some_and(|word| word == "listen");
    let rest = if listens { 1 } else { 3 };
    let count: usize = number(words, rest)?;
    let (seed, bytes): (u64, u64) = (number(words, rest + 1)?, number(words, rest + 2)?);
    let waiters: usize = number(words, rest + 3)?;
    let fds = if listens {
        let listener = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
        sys::bind(listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        sys::listen(listener, 128)?;
        println!("listening {}", sys::getsockname(listener)?.port());
        (0..count).map(|_| Ok(sys::accept(listener, libc::SOCK_CLOEXEC)?.0)).collect()
    } else {
        let to = format!("{}:{}", words[1], words[2]);
        let to: SocketAddr = to.parse().map_err(Error::other)?;
        let one = || {
            let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
            sys::connect(fd, to)?;
            Ok(fd)
        };
        (0..count).map(|_| one()).collect::<Result<Vec<Fd>>>()
    }?;
    let (read_end, write_end) = sys::pipe()?;
    let sets = [sys::epoll_create()?, sys::epoll_create()?];
    let connections = fds.iter().enumerate().map(|(nth, &fd)| {
        let (up, down) =
            (Pattern::new(seed + nth as u64 * 2), Pattern::new(seed + nth as u64 * 2 + 1));
        let (sends, receives) = if listens { (down, up) } else { (up, down) };
        let reader = Reader { position: 0, set: nth % 2, mode: IN, is_over: false };
        Connection { fd, sends, receives, reader: Mutex::new(reader), sent: Mutex::new(0) }
    });
    let soak = Soak {
        connections: connections.collect(),
        sets,
        bytes,
        moves: waiters > 1,
        looks: if waiters > 1 { [4, 12, 15][seed as usize % 3] } else { 4 },
        open: AtomicUsize::new(count),
        is_over: AtomicBool::new(false),
        end: write_end,
        events: AtomicU64::new(0),
        empty: AtomicU64::new(0),
    };
    for set in sets {
        sys::epoll_ctl(set, libc::EPOLL_CTL_ADD, read_end, libc::EPOLLIN as u32, END)?;
    }
    for (nth, connection) in soak.connections.iter().enumerate() {
        sys::epoll_ctl(sets[nth % 2], libc::EPOLL_CTL_ADD, connection.fd, IN, nth as u64)?;
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for nth in 0..2 * waiters {
            let random = Random(seed * 101 + nth as u64 + 1);
            let soak = &soak;
            threads.push(scope.spawn(move || wait(soak, nth % 2, random)));
        }
        for nth in 0..2 {
            let random = Random(seed * 103 + nth + 1);
            let soak = &soak;
            threads.push(scope.spawn(move || write(soak, random)));
        }
        if soak.moves {
            let (soak, random) = (&soak, Random(seed * 107 + 1));
            threads.push(scope.spawn(move || poll(soak, random)));
        }
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(Error::other("a thread panicked")))?;
        }
        Ok::<(), Error>(())
    })?;
    let (events, empty) = (&soak.events, &soak.empty);
    println!("done {} {}", events.load(Ordering::SeqCst), empty.load(Ordering::SeqCst));
    Ok(())
}

fn wait(soak: &Soak, set: usize, mut random: Random) -> Result<()> {
    let mut room = [libc::epoll_event { events: 0, u64: 0 }; 4];
    while !soak.is_over.load(Ordering::SeqCst) {
        let timeout_ms = if random.below(16) < soak.looks { 0 } else { -1 };
        let max = 1 + random.below(4) as usize;
        let found = sys::epoll_wait_into(soak.sets[set], &mut room[..max], timeout_ms)?;
        for event in &room[..found] {
            if event.u64 != END {
                soak.events.fetch_add(1, Ordering::Relaxed);
                read(soak, event.u64, &mut random, true)?;
            }
        }
    }
    Ok(())
}

/// Reads from a connection that something told of; registers it anew if that was an event.
fn read(soak: &Soak, nth: u64, random: &mut Random, is_event: bool) -> Result<()> {
    let connection = &soak.connections[nth as usize];
    let mut reader = lock(&connection.reader);
    let mut buffer = vec![0; 1 + random.below(PIECE_MAX) as usize];
    let mut was_empty = true;
    while !reader.is_over {
        let got = match sys::recv(connection.fd, &mut buffer, libc::MSG_DONTWAIT) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        };
        was_empty = false;
        if got == 0 {
            if reader.position != soak.bytes {
                return Err(Error::other(format!("the end after {}", reader.position)));
            }
            reader.is_over = true;
            sys::epoll_ctl(soak.sets[reader.set], libc::EPOLL_CTL_DEL, connection.fd, 0, 0)?;
            if soak.open.fetch_sub(1, Ordering::SeqCst) == 1 {
                soak.is_over.store(true, Ordering::SeqCst);
                sys::write(soak.end, b"!")?;
            }
            break;
        }
        connection.receives.check(reader.position, &buffer[..got]).map_err(Error::other)?;
        reader.position += got as u64;
        // On an edge: up to a short read, or to the end of what is there.
        if reader.mode & EDGE == 0 || got < buffer.len() {
            break;
        }
    }
    if was_empty && !reader.is_over {
        soak.empty.fetch_add(1, Ordering::Relaxed);
    }
    let arms = is_event && reader.mode & ONESHOT != 0;
    if !reader.is_over && soak.moves && (arms || random.below(8) == 0) {
        register(soak, connection, &mut reader, nth, random)?;
    }
    Ok(())
}

/// Under the reader's lock.
fn register(
    soak: &Soak,
    connection: &Connection,
    reader: &mut Reader,
    nth: u64,
    random: &mut Random,
) -> Result<()> {
    reader.mode = IN | [0, 0, EDGE, ONESHOT, EDGE | ONESHOT][random.below(5) as usize];
    let mut op = libc::EPOLL_CTL_MOD;
    if random.below(6) == 0 {
        sys::epoll_ctl(soak.sets[reader.set], libc::EPOLL_CTL_DEL, connection.fd, 0, 0)?;
        reader.set = random.below(2) as usize;
        op = libc::EPOLL_CTL_ADD;
    }
    sys::epoll_ctl(soak.sets[reader.set], op, connection.fd, reader.mode, nth)
}

fn poll(soak: &Soak, mut random: Random) -> Result<()> {
    while !soak.is_over.load(Ordering::SeqCst) {
        let nth = random.below(soak.connections.len() as u64);
        let timeout_ms = random.below(4) as i32;
        let fd = soak.connections[nth as usize].fd;
        if sys::poll_events(fd, libc::POLLIN, timeout_ms)? != 0 {
            read(soak, nth, &mut random, false)?;
        }
    }
    Ok(())
}

fn write(soak: &Soak, mut random: Random) -> Result<()> {
    let mut data = vec![0; PIECE_MAX as usize];
    loop {
        let left: Vec<&Connection> =
            soak.connections.iter().filter(|one| *lock(&one.sent) < soak.bytes).collect();
        if left.is_empty() {
            return Ok(());
        }
        let connection = left[random.below(left.len() as u64) as usize];
        for _ in 0..random.below(8) {
            let mut sent = lock(&connection.sent);
            let len = (1 + random.below(PIECE_MAX)).min(soak.bytes - *sent) as usize;
            if len == 0 {
                break;
            }
            connection.sends.fill(*sent, &mut data[..len]);
            let flags = if random.below(2) == 0 { libc::MSG_DONTWAIT } else { 0 };
            match sys::send(connection.fd, &data[..len], flags) {
                Ok(len) => *sent += len as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sys::poll_events(connection.fd, libc::POLLOUT, -1)?;
                }
                Err(error) => return Err(error),
            }
            if *sent == soak.bytes {
                sys::shutdown(connection.fd, libc::SHUT_WR)?;
            }
        }
        if random.below(4) == 0 {
            // Lets the readers run dry.
            std::thread::sleep(std::time::Duration::from_micros(random.below(300)));
        }
    }
}
