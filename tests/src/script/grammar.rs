//! Every command of the `script` peer with its words, so that a wrong one is found before it is
//! sent, and in the text of a scenario before anything runs (tests/scenarios.rs).
//!
//! Words in capitals stand for what a scenario puts there; in brackets for what may be left out.

/// One usage a line.
const USAGES: &str = "
listen NAME v4|v6
listenon NAME N N
accept NAME NAME [nonblock]
connect NAME IP N [nonblock]
socket NAME v4|v6
pairs NAME NAME
disconnect NAME
renew NAME
close NAME
closefd NAME
closebynumber NAME
forget NAME
shutdown NAME rd|wr|rdwr
nonblock NAME 0|1
set NAME OPTION N
get NAME OPTION
names NAME
counts NAME
state NAME
unread NAME
unsent NAME
unsentnow NAME
atmark NAME
readfile
sigpipe default
exit N
send NAME N [FLAGS] [FORM]
recv NAME N [FLAGS] [FORM]
whole NAME N FLAGS FORM
sendall NAME N
recvall NAME N
drain NAME
drainnow NAME
fill NAME
brim NAME
flood NAME [N]
soak NAME [N]
urgent NAME
badsend NAME
badrecv NAME
manyparts NAME N
vec NAME FORM PARTS [FLAGS]
badheader NAME FORM KIND
badpointers NAME KIND
badcall NAME FORM
errqueue NAME
recvcontrol NAME N
ulp NAME
tlskey NAME tx|rx
sendrecord NAME N N
sendopen NAME N IP N
count pipe|urg|io|usr2
caught pipe|urg|io|usr2
own NAME
uses NAME sends|receives
did
storm NAME N
tally NAME
stormread NAME N
look NAME
await NAME REST
awaitunread NAME N
selectnow NAME EVENTS
poll NAME EVENTS N
select NAME N
epoll NAME
epadd NAME NAME EVENTS
epmod NAME NAME EVENTS
epdel NAME NAME
epwait NAME N [N] [N]
epinorder NAME N
tells NAME NAME NAME N
causes forth|back NAME NAME NAME NAME NAME N
caused forth|back NAME NAME NAME NAME NAME N
ppoll NAME EVENTS N MASK
pselect NAME EVENTS N MASK
eppwait NAME N MASK
eppwait2 NAME N MASK
barepoll NAME EVENTS N
bareppoll NAME EVENTS N
bareselect NAME EVENTS N
bareepwait NAME N
aiopoll NAME EVENTS N
handler once|restart
handled
tryhandlers
blocked COMMAND
pending COMMAND
hold
announce NAME fcntl|ioctl 0|1
queue NAME 0|1
signalled [N]
vforked NAME KIND
unixlink NAME NAME
unixlisten NAME PATH
unixconnect NAME PATH
unixaccept NAME NAME
pair NAME NAME
give NAME NAME
take NAME NAME
dup NAME NAME
dup2 NAME NAME
dup3 NAME NAME
dupfd NAME NAME N
cloexec NAME 0|1
closesonexec NAME
blocks NAME
number NAME
lowest
limit N
closerange NAME
closefrom NAME
closeall NAME
async NAME COMMAND
asleep NAME
waiting NAME [N]
nudge NAME
kick NAME
join NAME
closing N N
opening N N
astray N N
pingpong NAME first|second N N WAITS
gather NAME N WAITS [N]
trickle NAME N N
fork NAME
in NAME COMMAND
user N
tell NAME COMMAND
hear NAME
kill NAME
reap NAME
leave N
exec [REST]
become PATH NAME
start PATH NAME
spawn NAME [REST]
vspawn NAME [REST]
system REST
";

const FLAGS: [&str; 9] =
    ["peek", "waitall", "dontwait", "trunc", "oob", "more", "zerocopy", "nosignal", "cloexec"];
const EVENTS: [&str; 9] = ["in", "pri", "out", "err", "hup", "rdhup", "oneshot", "et", "exclusive"];
const MASKS: [&str; 3] = ["nomask", "open", "usr1"];

fn usages() -> impl Iterator<Item = &'static str> {
    USAGES.lines().filter(|line| !line.is_empty())
}

/// Checks a command.
///
/// # Errors
/// What was expected.
pub fn check(command: &str) -> Result<(), String> {
    check_words(&command.split_whitespace().collect::<Vec<_>>())
}

fn check_words(words: &[&str]) -> Result<(), String> {
    let Some((first, rest)) = words.split_first() else {
        return Err("expected a command".to_owned());
    };
    if is_open(first) {
        return Ok(());
    }
    let named = || usages().filter(|usage| usage.split(' ').next() == Some(first));
    if named().next().is_none() {
        let names: Vec<&str> = usages().filter_map(|usage| usage.split(' ').next()).collect();
        return Err(format!("no command `{first}`; expected one of {}", names.join(" ")));
    }
    let mut inner = None;
    let shape = |usage: &'static str| usage.split(' ').skip(1).collect::<Vec<_>>();
    if named().any(|usage| fits(&shape(usage), rest, &mut inner)) {
        return Ok(());
    }
    // The command inside is the one that is wrong, where there is one.
    Err(inner.unwrap_or_else(|| format!("expected {}", named().collect::<Vec<_>>().join(" or "))))
}

/// A place of a format string: anything may come to stand there.
fn is_open(word: &str) -> bool {
    word.contains('{')
}

fn fits(shape: &[&str], words: &[&str], inner: &mut Option<String>) -> bool {
    let Some((wanted, shape)) = shape.split_first() else { return words.is_empty() };
    if let Some(optional) = wanted.strip_prefix('[').and_then(|one| one.strip_suffix(']')) {
        if words.is_empty() {
            return true;
        }
        return fits(&[&[optional], shape].concat(), words, inner);
    }
    let Some((word, rest)) = words.split_first() else { return false };
    match *wanted {
        "COMMAND" => match check_words(words) {
            Ok(()) => true,
            Err(expected) => {
                *inner = Some(expected);
                false
            }
        },
        "REST" => true,
        wanted => (is_open(word) || is_a(wanted, word)) && fits(shape, rest, inner),
    }
}

/// Whether a word can stand for what is wanted. What a form, an option, a kind of memory or a
/// wait may be called the peer alone knows.
fn is_a(wanted: &str, word: &str) -> bool {
    let all_of = |known: &[&str]| word == "-" || word.split('+').all(|one| known.contains(&one));
    match wanted {
        "N" => word.parse::<i64>().is_ok(),
        "IP" => word.parse::<std::net::IpAddr>().is_ok(),
        "FLAGS" => all_of(&FLAGS),
        "EVENTS" => all_of(&EVENTS),
        "MASK" => MASKS.contains(&word),
        "NAME" | "OPTION" | "FORM" | "PARTS" | "KIND" | "PATH" | "WAITS" => true,
        literal => literal.split('|').any(|one| one == word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fit() {
        for command in [
            "send C 100",
            "send C {len} {flags} {form}",
            "recv C 10 peek+dontwait recvmsg",
            "recv C 10 -",
            "in P async T epwait E 100 8",
            "{how} C",
            "exec plain",
            "exec",
            "connect C {} {port} nonblock",
            "awaitunread C 0",
        ] {
            assert_eq!(check(command), Ok(()), "{command}");
        }
    }

    #[test]
    fn typos_are_told_with_what_was_expected() {
        for (command, expected) in [
            ("sned C 100", "no command `sned`; expected one of listen "),
            ("send C many", "expected send NAME N [FLAGS] [FORM]"),
            ("send C 10 dontwiat", "expected send NAME N [FLAGS] [FORM]"),
            ("in P async T recv C", "expected recv NAME N [FLAGS] [FORM]"),
            ("poll C in", "expected poll NAME EVENTS N"),
            ("shutdown C both", "expected shutdown NAME rd|wr|rdwr"),
            ("close C now", "expected close NAME"),
            ("", "expected a command"),
        ] {
            let told = check(command).unwrap_err();
            assert!(told.starts_with(expected), "{command}: {told}");
        }
    }
}
