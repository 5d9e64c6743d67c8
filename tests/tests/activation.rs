//! Programs that start others while they have connections, and that get theirs from another
//! program: with real ones, for what `semantics` tests call by call.

use std::fs;

use yasmin_tests::installed::find_or_say;
use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::{Net, free_port};
use yasmin_tests::process::Process;

/// Echoes one connection after the other; between messages it starts programs in every way.
const SERVER: &str = r#"
import os, socket, subprocess, sys
if sys.argv[1] == "inherited":
    listener = socket.socket(fileno=3)
else:
    listener = socket.create_server((sys.argv[1], 0))
    print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.set_inheritable(sys.argv[2] == "inheritable")
def forks():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
def spawns():
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
starts = [
    forks, spawns, lambda: os.system("true"),
    lambda: subprocess.run(["true"], check=True),
    lambda: subprocess.run(["true"], check=True, close_fds=False),
    lambda: os.popen("true").close(),
]
count = 0
while data := connection.recv(65536):
    if count % 50 == 49 and sys.argv[2] != "alone":
        starts[count // 50 % len(starts)]()
    count += 1
    connection.sendall(data)
print("ok", flush=True)
"#;

const CLIENT: &str = r#"
import random, socket, sys, time
address = (sys.argv[1], int(sys.argv[2]))
while True:
    try:
        connection = socket.create_connection(address)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
random.seed(7)
for _ in range(700):
    data = random.randbytes(random.randrange(1, 3000))
    connection.sendall(data)
    got = b""
    while len(got) < len(data):
        part = connection.recv(65536)
        assert part, "the stream ended"
        got += part
    assert got == data, "other bytes came back"
connection.close()
print("ok", flush=True)
"#;

fn python(lab: &Lab, name: &str, program: &str, arguments: &[&str]) -> Option<Process> {
    let python = find_or_say("python3")?;
    let path = lab.folder.path().join(format!("{name}.py"));
    fs::write(&path, program).unwrap();
    let script = path.display().to_string();
    let arguments = [&[script.as_str()], arguments].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    Some(lab.start(name, &lab.a, &python, &arguments))
}

/// At least so many percent by ring. On an idle machine it is most; where others want the CPUs,
/// watching gives way to them.
const SHARE: u64 = 50;

/// A host that takes CPUs away makes both sides sleep: in one of so many rounds it does not.
const ROUNDS: u32 = 10;

/// Ends in every round with every byte in its place, and in one of them with a good part of the
/// bytes by ring. A round is `None` where a program is missing.
#[track_caller]
fn assert_much_by_ring(round: impl Fn(&Lab) -> Option<Vec<Process>>) {
    for nth in 1..=ROUNDS {
        let lab = Lab::new(Net::Loopback, Knobs::at_once());
        let Some(processes) = round(&lab) else { return };
        finish(processes);
        let bytes = lab.bytes_in_all();
        eprintln!("{bytes:?}");
        let all = bytes.ring + bytes.tcp;
        if nth == ROUNDS || lab.is_by_ring(bytes, all, SHARE) {
            return lab.assert_by_ring(bytes, all, SHARE);
        }
    }
}

#[track_caller]
fn finish(processes: Vec<Process>) {
    for mut process in processes {
        process.expect("ok");
        process.finish();
    }
}

/// The connection has close-on-exec, as Python's own have: it stays on its rings.
#[test]
fn a_server_that_starts_programs() {
    assert_much_by_ring(|lab| {
        let address = lab.a.v4().to_string();
        let mut server = python(lab, "server", SERVER, &[&address, "private"])?;
        let port = server.next_line().unwrap();
        Some(vec![python(lab, "client", CLIENT, &[&address, &port])?, server])
    });
}

/// It is inherited by each of them: TCP from then on, and every byte in its place.
#[test]
fn a_server_whose_programs_inherit_its_connection() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let address = lab.a.v4().to_string();
    let Some(mut server) = python(&lab, "server", SERVER, &[&address, "inheritable"]) else {
        return;
    };
    let port = server.next_line().unwrap();
    let Some(client) = python(&lab, "client", CLIENT, &[&address, &port]) else { return };
    finish(vec![client, server]);
}

/// systemd's way: the listener is descriptor 3, and what is accepted from it gets its rings.
#[test]
fn a_server_that_inherits_its_listener() {
    let (Some(activate), Some(python3)) =
        (find_or_say("systemd-socket-activate"), find_or_say("python3"))
    else {
        return;
    };
    assert_much_by_ring(|lab| {
        let (address, port) = (lab.a.v4().to_string(), free_port().to_string());
        let script = lab.folder.path().join("server.py");
        fs::write(&script, SERVER).unwrap();
        let mut arguments = vec!["-l".to_owned(), format!("{address}:{port}")];
        // It passes on only the variables that it is told to.
        for (name, _) in lab.environment() {
            arguments.extend(["-E".to_owned(), name.to_owned()]);
        }
        arguments.push(python3.display().to_string());
        arguments.push(script.display().to_string());
        arguments.extend(["inherited", "alone"].map(str::to_owned));
        let server = lab.start("server", &lab.a, &activate, &arguments);
        Some(vec![python(lab, "client", CLIENT, &[&address, &port])?, server])
    });
}

/// Accept=yes: each connection is a new program's descriptor, or its standard streams.
///
/// A program without the library starts from a connection without a ring: what lay unread in one
/// would be a reset for it (`unread` tells).
#[test]
fn a_program_for_each_connection() {
    let (Some(activate), Some(cat)) = (find_or_say("systemd-socket-activate"), find_or_say("cat"))
    else {
        return;
    };
    for with_library in [true, false] {
        let knobs = if with_library { Knobs::at_once() } else { Knobs::default() };
        let lab = Lab::new(Net::Loopback, knobs);
        let (address, port) = (lab.a.v4().to_string(), free_port().to_string());
        let listen = format!("{address}:{port}");
        let mut arguments: Vec<String> =
            ["-l", &listen, "--accept", "--inetd"].map(str::to_owned).to_vec();
        if with_library {
            for (name, _) in lab.environment() {
                arguments.extend(["-E".to_owned(), name.to_owned()]);
            }
        }
        arguments.push(cat.display().to_string());
        let mut server = lab.start("server", &lab.a, &activate, &arguments);
        for _ in 0..3 {
            let Some(mut client) = python(&lab, "client", CLIENT, &[&address, &port]) else {
                return;
            };
            client.expect("ok");
            client.finish();
        }
        server.kill();
    }
}
