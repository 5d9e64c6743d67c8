//! Random programs of socket calls, made to shrink well: every step makes sense, or is left
//! out, wherever it stands.

use proptest::prelude::*;

/// One of the two ends of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    A,
    B,
}

impl End {
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Where a step happens: at an end, on one of its connections, by one of its names.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub end: End,
    pub conn: usize,
    /// By the duplicate, if there is one.
    pub by_copy: bool,
    /// In the forked child, if there is one.
    pub in_child: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    Connect {
        warm: bool,
    },
    Send {
        at: Place,
        len: usize,
        form: &'static str,
        flags: &'static str,
    },
    /// Two sends that belong together: TCP may hold the first one back.
    SendMore {
        at: Place,
        len: usize,
        corked: bool,
    },
    Receive {
        at: Place,
        len: usize,
        form: &'static str,
        flags: &'static str,
    },
    /// As much as both can move, more than buffers and rings hold.
    Bulk {
        at: Place,
        len: usize,
    },
    /// A thread goes to sleep in a call, and something wakes it.
    Sleep {
        at: Place,
        call: &'static str,
        waker: Waker,
    },
    Poll {
        at: Place,
        events: &'static str,
    },
    Select {
        at: Place,
        events: &'static str,
    },
    Set {
        at: Place,
        option: &'static str,
        value: i32,
    },
    Get {
        at: Place,
        option: &'static str,
    },
    Nonblock {
        at: Place,
        on: bool,
    },
    Watch {
        at: Place,
        set: usize,
        events: &'static str,
    },
    Change {
        at: Place,
        set: usize,
        events: &'static str,
    },
    Unwatch {
        at: Place,
        set: usize,
    },
    Wait {
        end: End,
        set: usize,
        max: usize,
    },
    Shutdown {
        at: Place,
        how: &'static str,
    },
    Close {
        at: Place,
    },
    Copy {
        at: Place,
    },
    /// Over a Unix socket: to the forked child, if there is one, or to itself.
    Pass {
        at: Place,
    },
    Fork {
        end: End,
    },
    Reap {
        end: End,
    },
    BadMemory {
        at: Place,
        form: &'static str,
        kind: &'static str,
        len: usize,
    },
    Urgent {
        at: Place,
    },
    Look,
}

#[derive(Clone, Copy, Debug)]
pub enum Waker {
    Send(usize),
    Shutdown,
    Close,
    Signal { restarts: bool },
}

/// What the library is told, besides that it shall give a channel at once.
#[derive(Clone, Copy, Debug)]
pub struct Mood {
    pub spins: bool,
    pub chaos_permille: u32,
    pub seed: u64,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::A), Just(End::B)]
}

fn place() -> impl Strategy<Value = Place> {
    let rarely = || prop::bool::weighted(0.3);
    (end(), 0..3usize, rarely(), rarely()).prop_map(|(end, conn, by_copy, in_child)| Place {
        end,
        conn,
        by_copy,
        in_child,
    })
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 1..200usize,
        3 => 200..5000usize,
        2 => 5000..25_000usize,
        1 => Just(0),
    ]
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

const EVENTS: &[&str] =
    &["in", "out", "in+out", "in+rdhup", "rdhup", "in+out+rdhup+pri", "-", "pri"];
const SET_EVENTS: &[&str] = &[
    "in",
    "out",
    "in+out",
    "in+rdhup",
    "rdhup",
    "in+et",
    "in+out+et",
    "in+out+rdhup+et",
    "in+oneshot",
    "in+out+oneshot",
    "in+et+oneshot",
    "-",
    "pri",
];
const SEND_FORMS: &[&str] =
    &["send", "write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile"];
const RECEIVE_FORMS: &[&str] = &["recv", "recv", "read", "readv", "recvfrom", "recvmsg"];
const RECEIVE_FLAGS: &[&str] = &[
    "-",
    "-",
    "-",
    "dontwait",
    "peek",
    "peek+dontwait",
    "waitall",
    "trunc",
    "peek+waitall",
    "waitall+dontwait",
    "trunc+peek",
];

fn step() -> impl Strategy<Value = Step> {
    let waker = prop_oneof![
        4 => (1..3000usize).prop_map(Waker::Send),
        1 => Just(Waker::Shutdown),
        1 => Just(Waker::Close),
        2 => any::<bool>().prop_map(|restarts| Waker::Signal { restarts }),
    ];
    prop_oneof![
        4 => any::<bool>().prop_map(|warm| Step::Connect { warm }),
        20 => (place(), len(), one_of(SEND_FORMS), one_of(&["-", "nosignal", "dontwait"]))
            .prop_map(|(at, len, form, flags)| Step::Send { at, len, form, flags }),
        3 => (place(), len(), any::<bool>())
            .prop_map(|(at, len, corked)| Step::SendMore { at, len, corked }),
        20 => (place(), len(), one_of(RECEIVE_FORMS), one_of(RECEIVE_FLAGS))
            .prop_map(|(at, len, form, flags)| Step::Receive { at, len, form, flags }),
        1 => (place(), 100_000..3_000_000usize).prop_map(|(at, len)| Step::Bulk { at, len }),
        6 => (place(), one_of(&["recv", "peek", "waitall", "poll", "pollhup", "epwait"]), waker)
            .prop_map(|(at, call, waker)| Step::Sleep { at, call, waker }),
        4 => (place(), one_of(EVENTS)).prop_map(|(at, events)| Step::Poll { at, events }),
        3 => (place(), one_of(&["in", "out", "in+out", "in+out+pri", "pri"]))
            .prop_map(|(at, events)| Step::Select { at, events }),
        3 => (place(), prop::sample::select(vec![
                ("nodelay", 1), ("keepalive", 1), ("lowat", 1), ("lowat", 50),
                ("linger", 0), ("linger", -1), ("oobinline", 1), ("oobinline", 0),
                ("rcvtimeo", 20), ("rcvtimeo", 0),
            ])).prop_map(|(at, (option, value))| Step::Set { at, option, value }),
        2 => (place(), one_of(&["nodelay", "cork", "lowat", "error", "type", "oobinline"]))
            .prop_map(|(at, option)| Step::Get { at, option }),
        2 => (place(), any::<bool>()).prop_map(|(at, on)| Step::Nonblock { at, on }),
        5 => (place(), 0..2usize, one_of(SET_EVENTS))
            .prop_map(|(at, set, events)| Step::Watch { at, set, events }),
        4 => (place(), 0..2usize, one_of(SET_EVENTS))
            .prop_map(|(at, set, events)| Step::Change { at, set, events }),
        2 => (place(), 0..2usize).prop_map(|(at, set)| Step::Unwatch { at, set }),
        10 => (end(), 0..2usize, prop_oneof![4 => Just(64usize), 1 => Just(1)])
            .prop_map(|(end, set, max)| Step::Wait { end, set, max }),
        3 => (place(), one_of(&["rd", "wr", "wr", "rdwr"]))
            .prop_map(|(at, how)| Step::Shutdown { at, how }),
        4 => place().prop_map(|at| Step::Close { at }),
        2 => place().prop_map(|at| Step::Copy { at }),
        2 => place().prop_map(|at| Step::Pass { at }),
        1 => end().prop_map(|end| Step::Fork { end }),
        1 => end().prop_map(|end| Step::Reap { end }),
        2 => (place(), one_of(&["send", "write", "writev", "sendmsg", "recv", "read", "readv",
                "recvmsg"]), one_of(&["null", "low", "none", "high"]), 1..5000usize)
            .prop_map(|(at, form, kind, len)| Step::BadMemory { at, form, kind, len }),
        1 => place().prop_map(|at| Step::Urgent { at }),
        6 => Just(Step::Look),
    ]
}

/// A program begins with a connection that has been used.
pub fn programs(steps_max: usize) -> impl Strategy<Value = (Mood, Vec<Step>)> {
    let mood =
        (any::<bool>(), prop_oneof![2 => Just(0u32), 1 => Just(50), 1 => Just(300)], 1..1000u64)
            .prop_map(|(spins, chaos_permille, seed)| Mood { spins, chaos_permille, seed });
    (mood, prop::collection::vec(step(), 1..steps_max))
}
