//! Random programs of socket calls, made to shrink well: every step makes sense, or is left
//! out, wherever it stands.

use proptest::prelude::*;

use crate::classes;

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

/// An epoll set of an end, by one of its numbers.
#[derive(Clone, Copy, Debug)]
pub struct SetPlace {
    pub set: usize,
    pub by_copy: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    Connect {
        warm: bool,
        /// Set on the socket that will connect.
        early: Option<(&'static str, i32)>,
    },
    /// A connection that does not block from the beginning, as event loops make them.
    Dial {
        /// Where each end puts it.
        set: SetPlace,
        events: &'static str,
        /// Before it connects, and a wait tells of it.
        is_early: bool,
    },
    /// Accepted sockets inherit what the listener is set to.
    Listener {
        option: &'static str,
        value: i32,
    },
    /// Arguments that no call can use, on a socket that is not connected.
    Arguments {
        end: End,
        form: &'static str,
    },
    /// One process by itself, in rounds: what each call gives is chance, and only what must hold
    /// whatever they give is compared.
    Alone {
        end: End,
        what: &'static str,
        seed: u64,
        rounds: u64,
    },
    At(Place, Act),
    Wait {
        end: End,
        from: SetPlace,
        in_child: bool,
        max: usize,
    },
    /// A set in another one: put there, changed there, taken out.
    Nest {
        end: End,
        inner: SetPlace,
        outer: SetPlace,
        how: &'static str,
        events: &'static str,
        in_child: bool,
    },
    /// Asks of a set as of a descriptor.
    PollSet {
        end: End,
        from: SetPlace,
        how: &'static str,
        in_child: bool,
    },
    /// A set of its own that holds all connections, and the order in which it tells of them.
    Order {
        end: End,
        tells_once: bool,
        turns: Vec<(usize, Turn)>,
    },
    /// A second number for a set, by a way that has one.
    CopySet {
        end: End,
        set: usize,
        how: &'static str,
    },
    /// The child gets a set in a message.
    PassSet {
        end: End,
        set: usize,
        link: &'static str,
    },
    CloseSet {
        end: End,
        from: SetPlace,
        in_child: bool,
    },
    /// What becomes of the broker: kill, restart, freeze or thaw.
    Broker {
        how: &'static str,
    },
    Fork {
        end: End,
    },
    /// A process executes itself.
    Become {
        end: End,
        in_child: bool,
        /// With all that it has open, or else with what does not close on exec.
        keeps: bool,
    },
    /// It gives up its rights.
    Demote {
        end: End,
        in_child: bool,
    },
    /// A child that is a program of its own.
    Start {
        end: End,
        how: &'static str,
    },
    /// The child ends: it exits, or as when it is killed.
    Reap {
        end: End,
        exits: bool,
    },
    Look,
}

/// What is done with a descriptor of a connection.
#[derive(Clone, Debug)]
pub enum Act {
    Send {
        len: usize,
        form: &'static str,
        flags: &'static str,
    },
    /// Two sends that belong together: TCP may hold the first one back.
    SendMore {
        len: usize,
        corked: bool,
    },
    Receive {
        len: usize,
        form: &'static str,
        flags: &'static str,
    },
    /// What came right before is received, or what there is.
    Fetch {
        sent: Option<usize>,
        len: usize,
        form: &'static str,
    },
    /// As much as both can move, more than buffers and rings hold.
    Bulk {
        len: usize,
    },
    /// A thread goes to sleep in a call, and something wakes it.
    Sleep {
        call: &'static str,
        waker: Waker,
    },
    /// Both ends are event loops for a while; how each of them waits.
    Talk {
        len: usize,
        rounds: usize,
        waits: [&'static str; 2],
    },
    /// One end is an event loop, and what it reads comes in pieces, late if paced.
    Stream {
        len: usize,
        wait: &'static str,
        pace: Option<u32>,
        seed: u64,
    },
    /// Bytes that are under way by a slow wire, and others that are there before them, by ring; an
    /// event loop reads both.
    Overtake {
        first: usize,
        then: usize,
        wait: &'static str,
        bytes_per_s: u32,
    },
    /// Sets of its own, one inside the other, and what is done with them.
    Storeys {
        depth: usize,
        /// What each storey asks for, from the socket's on.
        events: [&'static str; 3],
        looks: Vec<&'static str>,
    },
    /// A set of its own that a child has too, from a point on, and what each of them does with it.
    Across {
        events: &'static str,
        fork_at: usize,
        /// Whether the child does it.
        looks: Vec<(bool, &'static str)>,
        exits: bool,
    },
    Poll {
        events: &'static str,
    },
    Select {
        events: &'static str,
    },
    Set {
        option: &'static str,
        value: i32,
    },
    Get {
        option: &'static str,
    },
    Nonblock {
        on: bool,
    },
    Watch {
        set: SetPlace,
        events: &'static str,
    },
    Change {
        set: SetPlace,
        events: &'static str,
    },
    Unwatch {
        set: SetPlace,
    },
    Shutdown {
        how: &'static str,
    },
    Close,
    Copy,
    /// Takes the place of another connection's number, which is closed.
    Over {
        onto: usize,
    },
    /// Whether a program that is executed has it, too.
    Inherit {
        on: bool,
    },
    /// Over a Unix socket that was made so: to a child, or to itself. It may let go of its own at
    /// once.
    Pass {
        link: &'static str,
        to_child: bool,
        /// The child was forked before all connections, and has only what it is sent.
        is_early: bool,
        /// Another child has it by fork meanwhile.
        beside: bool,
        closes: bool,
        /// Bytes come right before.
        unread: bool,
    },
    /// Signals tell of it from now on, or no longer.
    Announce {
        how: &'static str,
        on: bool,
    },
    /// A child in borrowed memory uses the number for something else.
    Borrow {
        how: &'static str,
    },
    Arguments {
        form: &'static str,
    },
    BadMemory {
        form: &'static str,
        kind: &'static str,
        len: usize,
    },
    /// An urgent byte, and others around it: the other end looks when all have come.
    Urgent {
        before: usize,
        after: usize,
    },
    ReceiveUrgent {
        peeks: bool,
    },
    /// Is the next byte the urgent one, and how many can be read before it.
    Mark,
}

/// What happens to one of the connections in a set.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    Wait,
    Receive(usize),
    Send(usize),
    /// By the other end.
    Sent(usize),
    Ask(&'static str),
}

impl Step {
    /// Leaves bytes elsewhere in the stream than their sender counts them.
    pub const fn displaces(&self) -> bool {
        matches!(self, Self::At(_, Act::Urgent { .. }))
    }

    /// Needs a wire that can be slowed down.
    pub const fn is_paced(&self) -> bool {
        matches!(self, Self::At(_, Act::Stream { pace: Some(_), .. } | Act::Overtake { .. }))
    }

    /// Needs the peer that has system calls of its own.
    pub fn is_bare(&self) -> bool {
        let is_bare = |wait: &str| wait.contains("bare") || wait.contains("aiopoll");
        match self {
            Self::At(_, Act::Sleep { call, .. }) => is_bare(call),
            Self::At(_, Act::Talk { waits, .. }) => waits.iter().any(|wait| is_bare(wait)),
            Self::At(_, Act::Stream { wait, .. }) => is_bare(wait),
            _ => false,
        }
    }

    /// Stands before the first connection where a program begins with it.
    pub const fn is_before(&self) -> bool {
        matches!(
            self,
            Self::Listener { .. } | Self::Arguments { .. } | Self::Alone { .. } | Self::Dial { .. }
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Waker {
    Send(usize),
    Shutdown,
    Close,
    Signal { restarts: bool },
}

/// What the library is told.
#[derive(Clone, Copy, Debug)]
pub struct Mood {
    /// So many messages come before a connection is offered; none: it has its channel at once.
    pub messages: u32,
    pub spins: bool,
    pub chaos_permille: u32,
    pub seed: u64,
}

/// Steps of some classes only: with all of them at once, each would come too seldom to meet
/// itself. One class, by its number, is in for certain.
pub fn programs(class: u64, steps_max: usize) -> impl Strategy<Value = (Mood, Vec<Step>)> {
    let mood = (
        prop_oneof![2 => Just(0u32), 1 => Just(4), 1 => Just(30)],
        any::<bool>(),
        prop_oneof![2 => Just(0u32), 1 => Just(50), 1 => Just(300)],
        1..1000u64,
    )
        .prop_map(|(messages, spins, chaos_permille, seed)| Mood {
            messages,
            spins,
            chaos_permille,
            seed,
        });
    let steps = (any::<u32>(), any::<u32>()).prop_ind_flat_map(move |(one, other)| {
        prop::collection::vec(classes::step(class, one & other), 1..steps_max)
    });
    (mood, steps)
}
