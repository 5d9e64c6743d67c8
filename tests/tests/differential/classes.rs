//! Classes of steps, and how often each step comes.
//!
//! `YASMIN_DIFFERENTIAL_ONLY=sets,unseen`: these and the basic steps, all of them in every
//! program. `YASMIN_DIFFERENTIAL_WITHOUT=urgent`: all but these.

use std::ops::Range;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::program::{Act, End, Place, SetPlace, Step, Turn, Waker};

type Steps = Vec<(u32, BoxedStrategy<Step>)>;
/// Makes the steps of one class.
type Class = fn() -> Steps;

/// Beside the basic steps, which are in every program.
const CLASSES: &[(&str, Class)] = &[
    ("options", options),
    ("polls", polls),
    ("sets", sets),
    ("copies", copies),
    ("stdio", stdio),
    ("setcopies", set_copies),
    ("nested", nested),
    ("across", across),
    ("order", order),
    ("fresh", fresh),
    ("dials", dials),
    ("late", late),
    ("unseen", unseen),
    ("announced", announced),
    ("passing", passing),
    ("forks", forks),
    ("starts", starts),
    ("broker", broker),
    ("memory", memory),
    ("urgent", urgent),
    ("borrowed", borrowed),
    ("early", early),
    ("past", past),
    ("arguments", arguments),
    ("closing", closing),
    ("astray", astray),
];

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::A), Just(End::B)]
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.3)
}

fn place() -> impl Strategy<Value = Place> {
    (end(), 0..3usize, rarely(), rarely()).prop_map(|(end, conn, by_copy, in_child)| Place {
        end,
        conn,
        by_copy,
        in_child,
    })
}

fn set() -> impl Strategy<Value = SetPlace> {
    (0..2usize, rarely()).prop_map(|(set, by_copy)| SetPlace { set, by_copy })
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

/// A step at a place.
fn at(act: impl Strategy<Value = Act> + 'static) -> BoxedStrategy<Step> {
    (place(), act).prop_map(|(at, act)| Step::At(at, act)).boxed()
}

const EVENTS: &[&str] =
    &["in", "out", "in+out", "in+rdhup", "rdhup", "in+out+rdhup+pri", "-", "pri"];
const SET_EVENTS: &[&str] = &[
    "in",
    "in",
    "out",
    "in+out",
    "in+rdhup",
    "rdhup",
    "out+et",
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
const SEEN: &[&str] = &["poll", "ppoll", "select", "pselect", "set", "setedge"];
const FRESH: &[&str] = &["fresh", "fresh", "fresh,set", "fresh,poll", "freshdup"];
const UNSEEN: &[&str] = &[
    "barepoll",
    "bareppoll",
    "bareselect",
    "bareset",
    "baresetedge",
    "barefresh",
    "aiopoll",
    "poll,barepoll",
    "set,bareset",
    "set,aiopoll",
    "select,bareselect,bareset",
];
const ANNOUNCED: &[&str] = &["sigio", "fioasync", "sigqueue", "sigio,poll", "sigio,set"];
const COPIED: &[&str] = &["dupsocket", "dupchange", "dupdelete", "dupsocket,poll", "dupsocket,set"];
const BORROWED: &[&str] = &["borrowset", "borrowsetedge", "borrowpoll", "borrowfresh"];
const NESTED: &[&str] = &[
    "nested",
    "nested",
    "nestededge",
    "nestedonce",
    "nestedtwice",
    "nestednew",
    "nested,set",
    "nested,poll",
    "pollset",
    "selectset",
];
const SET_COPIED: &[&str] = &["dupset", "dupsetedge", "freshdup", "dupset,set"];

fn waker() -> impl Strategy<Value = Waker> {
    prop_oneof![
        4 => (1..3000usize).prop_map(Waker::Send),
        1 => Just(Waker::Shutdown),
        1 => Just(Waker::Close),
        2 => any::<bool>().prop_map(|restarts| Waker::Signal { restarts }),
    ]
}

fn sleep(calls: &'static [&'static str]) -> BoxedStrategy<Step> {
    at((one_of(calls), waker()).prop_map(|(call, waker)| Act::Sleep { call, waker }))
}

/// A conversation in which one end waits so, and the other in some way that is seen.
fn talk(waits: &'static [&'static str]) -> BoxedStrategy<Step> {
    let len = prop_oneof![6 => 1..500usize, 1 => 500..20_000usize];
    at((len, 1..30usize, one_of(waits), one_of(SEEN))
        .prop_map(|(len, rounds, wait, other)| Act::Talk { len, rounds, waits: [wait, other] }))
}

fn stream(waits: &'static [&'static str]) -> BoxedStrategy<Step> {
    streams(waits, 1..60_000, Just(None))
}

fn streams(
    waits: &'static [&'static str],
    len: Range<usize>,
    pace: impl Strategy<Value = Option<u32>> + 'static,
) -> BoxedStrategy<Step> {
    at((len, one_of(waits), pace, 1..1000u64).prop_map(|(len, wait, pace, seed)| Act::Stream {
        len,
        wait,
        pace,
        seed,
    }))
}

fn basic() -> Steps {
    let send = (len(), one_of(SEND_FORMS), one_of(&["-", "nosignal", "dontwait"]));
    let receive = (len(), one_of(RECEIVE_FORMS), one_of(RECEIVE_FLAGS));
    vec![
        (4, any::<bool>().prop_map(|warm| Step::Connect { warm, early: None }).boxed()),
        (20, at(send.prop_map(|(len, form, flags)| Act::Send { len, form, flags }))),
        (3, at((len(), any::<bool>()).prop_map(|(len, corked)| Act::SendMore { len, corked }))),
        (20, at(receive.prop_map(|(len, form, flags)| Act::Receive { len, form, flags }))),
        (1, at((100_000..3_000_000usize).prop_map(|len| Act::Bulk { len }))),
        (4, sleep(&["recv", "peek", "waitall", "poll", "pollhup", "epwait"])),
        (2, at(any::<bool>().prop_map(|on| Act::Nonblock { on }))),
        (2, at(one_of(&["rd", "wr", "wr", "rdwr"]).prop_map(|how| Act::Shutdown { how }))),
        (3, at(Just(Act::Close))),
        (5, Just(Step::Look).boxed()),
    ]
}

fn options() -> Steps {
    let values = vec![
        ("nodelay", 1),
        ("keepalive", 1),
        ("lowat", 1),
        ("lowat", 50),
        ("linger", 0),
        ("linger", -1),
        ("oobinline", 1),
        ("oobinline", 0),
        ("rcvtimeo", 20),
        ("rcvtimeo", 0),
    ];
    let set = prop::sample::select(values).prop_map(|(option, value)| Act::Set { option, value });
    let get = one_of(&["nodelay", "cork", "lowat", "error", "type", "oobinline"]);
    vec![(8, at(set)), (4, at(get.prop_map(|option| Act::Get { option })))]
}

fn polls() -> Steps {
    let select = one_of(&["in", "out", "in+out", "in+out+pri", "pri"]);
    vec![
        (8, at(one_of(EVENTS).prop_map(|events| Act::Poll { events }))),
        (6, at(select.prop_map(|events| Act::Select { events }))),
        (4, talk(SEEN)),
        (2, stream(SEEN)),
    ]
}

fn sets() -> Steps {
    let waits = (end(), set(), rarely(), prop_oneof![4 => Just(64usize), 2 => 1..3usize]);
    let watch = (set(), one_of(SET_EVENTS));
    let change = (set(), one_of(SET_EVENTS));
    vec![
        (10, at(watch.prop_map(|(set, events)| Act::Watch { set, events }))),
        (5, at(change.prop_map(|(set, events)| Act::Change { set, events }))),
        (3, at(set().prop_map(|set| Act::Unwatch { set }))),
        (
            14,
            waits
                .prop_map(|(end, from, in_child, max)| Step::Wait { end, from, in_child, max })
                .boxed(),
        ),
        (
            2,
            (end(), set(), rarely())
                .prop_map(|(end, from, in_child)| Step::CloseSet { end, from, in_child })
                .boxed(),
        ),
    ]
}

/// Streams of copies, which are closed with them.
fn stdio() -> Steps {
    let send = len().prop_map(|len| Act::Send { len, form: "fwrite", flags: "-" });
    let receive = len().prop_map(|len| Act::Receive { len, form: "streamread", flags: "-" });
    vec![(12, at(send)), (12, at(receive))]
}

fn copies() -> Steps {
    let mut steps = sets();
    steps.extend([
        (8, at(Just(Act::Copy))),
        (4, at((0..3usize).prop_map(|onto| Act::Over { onto }))),
        (5, talk(COPIED)),
        (2, stream(COPIED)),
    ]);
    steps
}

fn set_copies() -> Steps {
    let copy = (end(), 0..2usize, one_of(&["dup", "dupfd", "pair", "accepted"]));
    let mut steps = sets();
    steps.extend([
        (8, copy.prop_map(|(end, set, how)| Step::CopySet { end, set, how }).boxed()),
        (5, talk(SET_COPIED)),
        (2, stream(SET_COPIED)),
    ]);
    steps
}

/// Sets in sets. Which of them may be in which keeps them from going round.
fn nested() -> Steps {
    let pair = prop::sample::select(vec![[0, 1], [0, 1], [1, 2], [0, 2]]);
    let how = one_of(&["epadd", "epadd", "epadd", "epmod", "epmod", "epdel"]);
    let events = one_of(&["in", "in", "in+oneshot", "in+oneshot", "-", "in+out+pri"]);
    let nest = (end(), pair, [rarely(), rarely()], how, events, rarely()).prop_map(
        |(end, [inner, outer], [inner_copy, outer_copy], how, events, in_child)| Step::Nest {
            end,
            inner: SetPlace { set: inner, by_copy: inner_copy },
            outer: SetPlace { set: outer, by_copy: outer_copy },
            how,
            events,
            in_child,
        },
    );
    let look = one_of(&[
        "sent", "sent", "sleep", "sleep", "watch", "watch", "outer", "outer", "outer", "inner",
        "change", "nest", "renest", "read",
    ]);
    let asked = || one_of(&["in", "in", "in+oneshot", "in+oneshot", "in+out", "in+rdhup+et"]);
    let storey = || one_of(&["in", "in", "in+oneshot"]);
    let storeys = (2..4usize, asked(), storey(), storey(), prop::collection::vec(look, 3..12))
        .prop_map(|(depth, first, second, third, looks)| Act::Storeys {
            depth,
            events: [first, second, third],
            looks,
        });
    let any = || (0..3usize, rarely()).prop_map(|(set, by_copy)| SetPlace { set, by_copy });
    let poll = (end(), any(), one_of(&["poll", "select"]), rarely());
    let wait = (end(), any(), rarely());
    let mut steps = sets();
    steps.extend([
        (12, nest.boxed()),
        (
            8,
            poll.prop_map(|(end, from, how, in_child)| Step::PollSet { end, from, how, in_child })
                .boxed(),
        ),
        (
            8,
            wait.prop_map(|(end, from, in_child)| Step::Wait { end, from, in_child, max: 64 })
                .boxed(),
        ),
        (16, at(storeys)),
        (8, talk(NESTED)),
        (3, stream(NESTED)),
        (6, sleep(&["outerwait", "pollset"])),
    ]);
    steps
}

/// Sets that two processes use.
fn across() -> Steps {
    let events = || one_of(&["in", "in+oneshot", "in+oneshot", "in+out+oneshot", "in+et+oneshot"]);
    let look = one_of(&[
        "sent",
        "sent",
        "sent",
        "read",
        "dry",
        "dry",
        "wait",
        "wait",
        "wait",
        "in",
        "in+oneshot",
        "in+oneshot",
        "in+oneshot",
        "in+oneshot",
        "in+out+oneshot",
        "out+oneshot",
        "forget",
        "watch",
    ]);
    let looks = prop::collection::vec((any::<bool>(), look), 4..30);
    let across = (events(), 0..20usize, looks, any::<bool>())
        .prop_map(|(events, fork_at, looks, exits)| Act::Across { events, fork_at, looks, exits });
    vec![
        (16, at(across)),
        (4, any::<bool>().prop_map(|warm| Step::Connect { warm, early: None }).boxed()),
    ]
}

/// With less than three connections there is little to see.
fn order() -> Steps {
    let turn = prop_oneof![
        3 => Just(Turn::Wait),
        6 => (1..300usize).prop_map(Turn::Sent),
        4 => (1..600usize).prop_map(Turn::Receive),
        1 => (1..300usize).prop_map(Turn::Send),
        4 => one_of(&["in", "in", "in+out", "in+rdhup", "out"]).prop_map(Turn::Ask),
    ];
    let turns = prop::collection::vec((0..3usize, turn), 4..30);
    let order = (end(), rarely(), turns).prop_map(|(end, tells_once, turns)| Step::Order {
        end,
        tells_once,
        turns,
    });
    vec![
        (12, any::<bool>().prop_map(|warm| Step::Connect { warm, early: None }).boxed()),
        (30, order.boxed()),
    ]
}

fn fresh() -> Steps {
    vec![(12, talk(FRESH)), (6, stream(FRESH)), (3, sleep(&["epwait"]))]
}

fn dials() -> Steps {
    let dial = (set(), one_of(SET_EVENTS), any::<bool>())
        .prop_map(|(set, events, is_early)| Step::Dial { set, events, is_early });
    let mut steps = sets();
    steps.extend([(14, dial.boxed()), (3, talk(SEEN))]);
    steps
}

/// Short and slow ones above all: more bytes hide that nobody was told of some.
fn late() -> Steps {
    const SLOW: &[u32] = &[30_000, 100_000, 300_000];
    let waits = &["set", "set", "set", "setedge", "poll", "select"];
    let slow = prop::sample::select(SLOW).prop_map(Some);
    let fast = prop_oneof![Just(Some(300_000u32)), Just(Some(3_000_000)), Just(Some(30_000_000))];
    let overtake =
        (2000..6000usize, 1..3000usize, one_of(waits), prop::sample::select(SLOW)).prop_map(
            |(first, then, wait, bytes_per_s)| Act::Overtake { first, then, wait, bytes_per_s },
        );
    vec![
        (20, streams(waits, 1..3000, slow)),
        (4, streams(waits, 1..60_000, fast)),
        (16, at(overtake)),
    ]
}

fn unseen() -> Steps {
    let calls = &["barepoll", "bareppoll", "bareselect", "bareepwait", "aiopoll"];
    vec![(10, talk(UNSEEN)), (5, stream(UNSEEN)), (12, sleep(calls))]
}

fn announced() -> Steps {
    let announce = (one_of(&["fcntl", "ioctl"]), prop::bool::weighted(0.8));
    vec![
        (8, talk(ANNOUNCED)),
        (4, stream(ANNOUNCED)),
        (6, at(announce.prop_map(|(how, on)| Act::Announce { how, on }))),
        (3, Just(Step::Connect { warm: false, early: Some(("announce", 1)) }).boxed()),
        (8, sleep(&["signalled"])),
    ]
}

fn passing() -> Steps {
    let link = one_of(&["pair", "accepted", "connected"]);
    let pass = (link, any::<[bool; 4]>(), rarely()).prop_map(
        |(link, [to_child, is_early, closes, unread], beside)| Act::Pass {
            link,
            to_child,
            is_early,
            beside,
            closes,
            unread,
        },
    );
    vec![
        (12, at(pass)),
        (6, any::<bool>().prop_map(|warm| Step::Connect { warm, early: None }).boxed()),
    ]
}

fn borrowed() -> Steps {
    let how = one_of(&[
        "dup2",
        "dup3",
        "close",
        "closesocket",
        "closeaccept",
        "closeset",
        "closerange",
        "spawndup2",
        "spawnclose",
        "spawnopen",
        "system",
        "popen",
        "forkexec",
    ]);
    let mut steps = sets();
    steps.push((10, at(how.prop_map(|how| Act::Borrow { how }))));
    steps.push((6, sleep(&["epwait", "recv"])));
    steps.push((8, talk(BORROWED)));
    steps
}

fn early() -> Steps {
    let options = || {
        prop::sample::select(vec![
            ("timestamp", 1),
            ("timestampns", 1),
            ("timestampnew", 1),
            ("timestampnsnew", 1),
            // Software receive times.
            ("timestamping", 8 | 16),
            ("peekoff", 0),
            ("peekoff", 5),
            ("peekoff", -1),
            ("lowat", 50),
            ("inq", 1),
            ("oobinline", 1),
            ("announce", 1),
            ("ulp", 0),
            ("zerocopy", 1),
            ("rcvtimeo", 20),
            ("keepalive", 1),
            ("usertimeout", 5000),
        ])
    };
    let connect = (any::<bool>(), prop::option::weighted(0.8, options()));
    let receive = (len(), one_of(&["control", "smallcontrol", "nocontrol"]));
    let peek = (1..50usize, one_of(&["peek", "peek+dontwait", "peek+trunc"]));
    vec![
        (8, connect.prop_map(|(warm, early)| Step::Connect { warm, early }).boxed()),
        (5, options().prop_map(|(option, value)| Step::Listener { option, value }).boxed()),
        (3, at(options().prop_map(|(option, value)| Act::Set { option, value }))),
        (14, at(receive.prop_map(|(len, form)| Act::Receive { len, form, flags: "-" }))),
        (8, at(peek.prop_map(|(len, flags)| Act::Receive { len, form: "recv", flags }))),
        (4, sleep(&["signalled"])),
    ]
}

/// Ways past the calls that most programs use.
fn past() -> Steps {
    let send = (
        len(),
        one_of(&[
            "pwritev2",
            "pwritev64v2",
            "aiowrite",
            "submitwrite",
            "__write",
            "__send",
            "fwrite",
            "writebynumber",
            "splice",
        ]),
    );
    let receive = one_of(&[
        "preadv2",
        "preadv64v2",
        "aioread",
        "submitread",
        "__read",
        "__recv",
        "__read_chk",
        "__recv_chk",
        "readbynumber",
        "splice",
    ]);
    let receive = (len(), receive, prop::option::weighted(0.7, 1..5000usize));
    vec![
        (14, at(send.prop_map(|(len, form)| Act::Send { len, form, flags: "-" }))),
        // Mostly right behind bytes, which are still in the ring.
        (14, at(receive.prop_map(|(len, form, sent)| Act::Fetch { sent, len, form }))),
    ]
}

fn arguments() -> Steps {
    let form = || {
        one_of(&[
            "recvminus",
            "recvfromminus",
            "readminus",
            "writeminus",
            "recvnowhere",
            "sendnowhere",
            "recvfromname",
            "connectnowhere",
            "connectnull",
            "connectminus",
            "selectnowhere",
            "selectwrites",
            "selecttime",
            "selectminus",
            "pollnowhere",
            "pollmany",
            "ppollmask",
            "epwaitnowhere",
            "epwaitnone",
            "epwaitminus",
            "epwaitmany",
            "epctlnowhere",
            "getoption",
            "getoptionlen",
            "getoptionminus",
            "setoption",
            "setoptionminus",
            "getname",
            "unread",
        ])
    };
    vec![
        (10, at(form().prop_map(|form| Act::Arguments { form }))),
        (8, (end(), form()).prop_map(|(end, form)| Step::Arguments { end, form }).boxed()),
    ]
}

fn alone(what: &'static str, rounds: Range<u64>) -> BoxedStrategy<Step> {
    (end(), 1..1000u64, rounds)
        .prop_map(move |(end, seed, rounds)| Step::Alone { end, what, seed, rounds })
        .boxed()
}

/// One thread closes what others use: what each of them gets is chance, so both ends are one
/// process's own, and only that it lives on is compared.
fn closing() -> Steps {
    vec![(6, alone("closing", 5..60)), (6, alone("opening", 10..200))]
}

/// Bytes in code that nobody can know of: a connection may end for it.
fn astray() -> Steps {
    vec![(6, alone("astray", 3..20))]
}

fn forks() -> Steps {
    vec![
        (3, end().prop_map(|end| Step::Fork { end }).boxed()),
        (2, (end(), any::<bool>()).prop_map(|(end, exits)| Step::Reap { end, exits }).boxed()),
        (3, at(Just(Act::Close))),
    ]
}

fn starts() -> Steps {
    let become_ = (end(), rarely(), any::<bool>())
        .prop_map(|(end, in_child, keeps)| Step::Become { end, in_child, keeps });
    let start = (end(), one_of(&["spawn P", "vspawn P", "vspawn P closing"]))
        .prop_map(|(end, how)| Step::Start { end, how });
    let pass_set = (end(), 0..2usize, one_of(&["pair", "accepted"]))
        .prop_map(|(end, set, link)| Step::PassSet { end, set, link });
    let pass = (one_of(&["pair", "accepted", "connected"]), any::<bool>(), any::<bool>());
    let pass = pass.prop_map(|(link, closes, unread)| Act::Pass {
        link,
        to_child: true,
        is_early: false,
        beside: false,
        closes,
        unread,
    });
    let mut steps = sets();
    steps.extend(forks());
    steps.extend([
        (5, become_.boxed()),
        (4, start.boxed()),
        (4, pass_set.boxed()),
        (4, at(pass)),
        (6, at(any::<bool>().prop_map(|on| Act::Inherit { on }))),
        (4, at(Just(Act::Copy))),
        (2, at((0..3usize).prop_map(|onto| Act::Over { onto }))),
        (
            1,
            (end(), any::<bool>())
                .prop_map(|(end, in_child)| Step::Demote { end, in_child })
                .boxed(),
        ),
    ]);
    steps
}

fn broker() -> Steps {
    let how = one_of(&["kill", "restart", "freeze", "thaw"]);
    let mut steps = sets();
    steps.extend(forks());
    steps.extend([
        (6, how.prop_map(|how| Step::Broker { how }).boxed()),
        (8, any::<bool>().prop_map(|warm| Step::Connect { warm, early: None }).boxed()),
        (4, at(Just(Act::Close))),
        (4, talk(SEEN)),
    ]);
    steps
}

fn memory() -> Steps {
    let forms = &["send", "write", "writev", "sendmsg", "recv", "read", "readv", "recvmsg"];
    let call = (one_of(forms), one_of(&["null", "low", "none", "high"]), 1..5000usize);
    vec![(8, at(call.prop_map(|(form, kind, len)| Act::BadMemory { form, kind, len })))]
}

fn urgent() -> Steps {
    let inline =
        any::<bool>().prop_map(|on| Act::Set { option: "oobinline", value: i32::from(on) });
    let around = || prop_oneof![2 => Just(0usize), 3 => 1..200usize];
    let urgent = (around(), around());
    vec![
        (6, at(urgent.prop_map(|(before, after)| Act::Urgent { before, after }))),
        (5, at(any::<bool>().prop_map(|peeks| Act::ReceiveUrgent { peeks }))),
        (6, at(Just(Act::Mark))),
        (2, at(inline)),
    ]
}

/// Which classes there are in this run, and whether all of them are in each program.
fn chosen() -> &'static (Vec<(&'static str, Class)>, bool) {
    static CHOSEN: OnceLock<(Vec<(&str, Class)>, bool)> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let named = |variable| {
            let text: String = std::env::var(variable).unwrap_or_default();
            let names: Vec<String> =
                text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            for name in &names {
                let is_known = CLASSES.iter().any(|(class, _)| class == name);
                let classes: Vec<_> = CLASSES.iter().map(|(class, _)| *class).collect();
                assert!(is_known, "{variable}: no class {name}; there are {}", classes.join(", "));
            }
            names
        };
        let (only, without) =
            (named("YASMIN_DIFFERENTIAL_ONLY"), named("YASMIN_DIFFERENTIAL_WITHOUT"));
        let has = |names: &[String], class: &str| names.iter().any(|name| name == class);
        let classes = CLASSES
            .iter()
            .filter(|(class, _)| only.is_empty() || has(&only, class))
            .filter(|(class, _)| !has(&without, class));
        (classes.copied().collect(), !only.is_empty())
    })
}

/// `lots`: which of the classes are in, a bit for each; one is in for certain.
pub fn step(certain: u64, lots: u32) -> impl Strategy<Value = Step> {
    let (classes, all) = chosen();
    let certain = (certain % classes.len().max(1) as u64) as usize;
    // Waits that nobody sees leave nothing to the ring: they do not join other classes by chance. What is
    // unread goes by the broker where a socket is passed on.
    let is_certain = |name: &str| classes.get(certain).is_some_and(|(class, _)| *class == name);
    let may_join = |name: &str| {
        name != "unseen" && name != "broker" && !(name == "passing" && is_certain("broker"))
    };
    let chosen = classes.iter().enumerate().filter(|(nth, (name, _))| {
        *all || *nth == certain || may_join(name) && lots >> nth & 1 != 0
    });
    let steps = chosen.flat_map(|(_, (_, steps))| steps());
    Union::new_weighted(basic().into_iter().chain(steps).collect())
}
