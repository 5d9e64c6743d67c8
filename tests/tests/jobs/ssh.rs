//! OpenSSH: the server forks and executes itself for each connection, and the part that talks
//! first runs in a seccomp sandbox.

use yasmin_tests::job::{self, Job, Rings, Stage};
use yasmin_tests::process::Process;

use crate::files;

/// Files fetched one after the other through a forwarded connection.
const FETCHES: usize = 12;

/// What a client needs to log in without being asked.
pub struct Login {
    pub server: Process,
    /// Options of ssh, scp and sftp.
    pub options: Vec<String>,
    pub port: u16,
    pub user: String,
}

/// sshd on a private port, with keys of its own.
#[track_caller]
pub fn start(stage: &Stage) -> Login {
    let port = Stage::port();
    for name in ["host-key", "user-key"] {
        let path = stage.path(name);
        stage.server("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path]).plain().run();
    }
    let [host_key, user_key, authorized] =
        ["host-key", "user-key", "user-key.pub"].map(|name| stage.path(name));
    let config = format!(
        "Port {port}\nListenAddress 0.0.0.0\nHostKey {host_key}\nAuthorizedKeysFile {authorized}\n\
         PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nUseDNS no\n\
         Subsystem sftp internal-sftp\nMaxSessions 50\n"
    );
    let config = stage.write("sshd_config", config);
    if yasmin_tests::netns::allowed() {
        // What the package's service makes.
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
    let server = stage.server("sshd", &["-D", "-e", "-f", &config]).listen(port);
    let known = stage.path("known-hosts");
    let words = [
        "StrictHostKeyChecking=no",
        &format!("UserKnownHostsFile={known}"),
        "BatchMode=yes",
        "LogLevel=ERROR",
        &format!("IdentityFile={user_key}"),
        "IdentitiesOnly=yes",
    ];
    let options = words.iter().flat_map(|word| ["-o".to_owned(), (*word).to_owned()]).collect();
    let user = files::own_name();
    Login { server, options, port, user }
}

impl Login {
    /// One program of the family, with the options, the port's own, and `words`.
    #[track_caller]
    pub fn run(&self, stage: &Stage, name: &str, words: &[&str]) -> String {
        let port = format!("Port={}", self.port);
        let mut all: Vec<&str> = self.options.iter().map(String::as_str).collect();
        all.extend(["-o", &port]);
        all.extend(words);
        stage.client(name, &all).run()
    }
}

#[test]
fn copies_commands_and_forwarding() {
    job::check(&Job {
        program: "OpenSSH",
        job: "commands, files by scp and sftp and through a pipe, new keys under way, sessions \
              at once, forwarded ports; compared",
        needs: &["sshd", "ssh", "scp", "sftp", "ssh-keygen", "curl", "python3"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let mut login = start(stage);
    let ip = stage.ip();
    let at = format!("{}@{ip}", login.user);
    assert_eq!(login.run(stage, "ssh", &[&at, "echo hello; exit 0"]), "hello\n");

    let file = stage.write_pattern("file", 11, if job::all() { 30 << 20 } else { 8 << 20 });
    let [there, back, fetched, piped] =
        ["there", "back", "fetched", "piped"].map(|name| stage.path(name));
    login.run(stage, "scp", &["-q", &file, &format!("{at}:{there}")]);
    files::assert_same(&file, &there);
    login.run(stage, "scp", &["-q", "-O", &format!("{at}:{there}"), &back]);
    files::assert_same(&file, &back);
    let batch = stage.write("batch", format!("get {there} {fetched}\nput {file} {there}2\n"));
    login.run(stage, "sftp", &["-b", &batch, &at]);
    files::assert_same(&file, &fetched);
    files::assert_same(&file, stage.path("there2"));
    // New keys after every MiB.
    let copy = format!("cat {file}");
    let shell = format!(
        "ssh {} -o Port={} -o RekeyLimit=1M {at} 'cat' < {file} > {piped}",
        login.options.join(" "),
        login.port
    );
    stage.client("sh", &["-c", &shell]).run();
    files::assert_same(&file, &piped);

    // Sessions at once over one connection.
    let control = stage.path("control");
    let master = ["-o", "ControlMaster=yes", "-o", &format!("ControlPath={control}"), "-N", &at];
    let port = format!("Port={}", login.port);
    let mut words: Vec<&str> = login.options.iter().map(String::as_str).collect();
    words.extend(["-o", &port]);
    let web = Stage::port();
    let forwarded = Stage::port();
    let forward = format!("{forwarded}:{ip}:{web}");
    let all = [&words[..], &["-L", &forward], &master].concat();
    let mut master = stage.client("ssh", &all).listen(forwarded);
    let shared = ["-o", &format!("ControlPath={control}"), &at, &format!("{copy} | sha256sum")];
    let mut sessions: Vec<_> = (0..4)
        .map(|_| {
            let all = [&words[..], &shared].concat();
            stage.client("ssh", &all).start()
        })
        .collect();
    let sums: Vec<_> = sessions.iter_mut().map(|session| session.next_line()).collect();
    let expected = stage.client("sha256sum", &[&file]).plain().run();
    for sum in sums {
        assert_eq!(sum.unwrap_or_default().split(' ').next(), expected.split(' ').next());
    }
    for session in &mut sessions {
        session.finish();
    }

    let web_text = web.to_string();
    let serve = ["-m", "http.server", "--protocol", "HTTP/1.1", "-d", &stage.path(""), &web_text];
    let mut server = stage.server("python3", &serve).listen(web);
    // One connection for all, kept alive: how long one of a single file lasts is the machine's
    // affair, and it may be over before it has a ring.
    let url = format!("http://{}:{forwarded}/file?[1-{FETCHES}]", std::net::Ipv4Addr::LOCALHOST);
    let got = stage.path("got");
    stage.client("curl", &["-sSf", "-o", &format!("{got}#1"), &url]).run();
    for n in 1..=FETCHES {
        files::assert_same(&file, format!("{got}{n}"));
    }
    server.kill();
    master.terminate();
    login.server.terminate();
}
