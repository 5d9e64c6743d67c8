//! git over HTTP: clones, fetches and pushes.

use yasmin_tests::installed::find;
use yasmin_tests::job::{self, Job, Rings, Stage};

use crate::web::start_nginx;

#[test]
fn smart_http() {
    job::check(&Job {
        program: "git",
        job: "smart HTTP (git http-backend behind nginx and fcgiwrap): clone, push, fetch, fsck, \
              objects compared",
        needs: &["git", "git-http-backend", "fcgiwrap", "nginx"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run: smart,
    });
}

#[test]
fn dumb_http() {
    job::check(&Job {
        program: "git and curl",
        job: "dumb HTTP (Python's server): clone, fsck, objects compared",
        needs: &["git", "python3"],
        is_large: false,
        rings: Rings::UsedWhenForced("Python's server takes a new connection for each request."),
        note: "",
        run: dumb,
    });
}

/// Bytes of a file that does not compress: what git itself does with them takes long.
fn large() -> usize {
    if job::all() { 6 << 20 } else { 1 << 20 }
}

fn git(stage: &Stage, folder: &str, words: &[&str]) -> String {
    let identity = ["-c", "user.name=job", "-c", "user.email=job@example.org"];
    let all = [&["-C", folder], &identity[..], words].concat();
    let line = stage.client("git", &all).env("HOME", stage.path(""));
    line.env("GIT_CONFIG_NOSYSTEM", "1").run()
}

/// A repository with history, many objects and large ones; gives the bare one.
fn make_repository(stage: &Stage) -> String {
    let mut stream = String::new();
    for commit in 0..60u64 {
        let message = format!("commit {commit}");
        stream.push_str(&format!(
            "commit refs/heads/main\ncommitter job <job@example.org> {} +0000\ndata {}\n{message}\n",
            1_700_000_000 + commit,
            message.len()
        ));
        for file in 0..5 {
            let text = format!("{commit} {file} ").repeat(200 + commit as usize);
            let name = format!("folder{}/file{file}", commit % 17);
            stream.push_str(&format!("M 644 inline {name}\ndata {}\n{text}\n", text.len()));
        }
    }
    let stream = stage.write("stream", stream);
    let repository = stage.make_folder("repository.git", None);
    git(stage, &repository, &["init", "-q", "--bare", "-b", "main"]);
    let import = format!("git -C {repository} fast-import --quiet < {stream}");
    stage.client("sh", &["-c", &import]).plain().run();
    let work = stage.path("work");
    git(stage, "/", &["clone", "-q", &repository, &work]);
    for nth in 0..3 {
        // Not compressible: one large object each.
        stage.write_pattern(&format!("work/large{nth}"), nth, large());
    }
    git(stage, &work, &["add", "."]);
    git(stage, &work, &["commit", "-q", "-m", "large files"]);
    git(stage, &work, &["push", "-q", "origin", "main"]);
    git(stage, &repository, &["config", "http.receivepack", "true"]);
    git(stage, &repository, &["update-server-info"]);
    repository
}

/// All objects that can be reached, with their types and sizes.
fn objects(stage: &Stage, folder: &str) -> String {
    git(stage, folder, &["fsck", "--strict", "--full"]);
    let list = git(stage, folder, &["rev-list", "--objects", "--all"]);
    let mut names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.join("\n")
}

fn smart(stage: &Stage) {
    let (port, fcgi) = (Stage::port(), Stage::port());
    let repository = make_repository(stage);
    let backend = find("git-http-backend").unwrap();
    let socket = format!("tcp:{}:{fcgi}", stage.ip());
    let mut wrapper = stage.server("fcgiwrap", &["-c", "2", "-s", &socket]).listen(fcgi);
    let server = format!(
        "server {{ listen @PORT@; location / {{
           fastcgi_pass {}:{fcgi}; fastcgi_request_buffering off; fastcgi_buffering off;
           fastcgi_param SCRIPT_FILENAME {}; fastcgi_param GIT_PROJECT_ROOT @FOLDER@;
           fastcgi_param GIT_HTTP_EXPORT_ALL 1; fastcgi_param PATH_INFO $uri;
           fastcgi_param REMOTE_USER job; fastcgi_param QUERY_STRING $query_string;
           fastcgi_param REQUEST_METHOD $request_method; fastcgi_param HOME @FOLDER@;
           fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
           fastcgi_param GIT_PROTOCOL $http_git_protocol;
           fastcgi_param GIT_CONFIG_COUNT 1; fastcgi_param GIT_CONFIG_KEY_0 safe.directory;
           fastcgi_param GIT_CONFIG_VALUE_0 *; }} }}",
        stage.ip(),
        backend.display()
    );
    let mut nginx = start_nginx(stage, "nginx", port, &server);
    let url = format!("http://{}:{port}/repository.git", stage.ip());
    let [one, two] = ["one", "two"].map(|name| stage.path(name));
    for clone in [&one, &two] {
        git(stage, "/", &["clone", "-q", &url, clone]);
        assert_eq!(objects(stage, clone), objects(stage, &repository), "objects of {clone}");
    }
    for turn in 0..3 {
        stage.write_pattern(&format!("one/new{turn}"), 50 + turn, large());
        git(stage, &one, &["add", "."]);
        git(stage, &one, &["commit", "-q", "-m", "new"]);
        git(stage, &one, &["push", "-q", "origin", "main"]);
        git(stage, &two, &["pull", "-q", "--ff-only"]);
    }
    assert_eq!(objects(stage, &one), objects(stage, &repository), "objects after pushing");
    assert_eq!(objects(stage, &two), objects(stage, &repository), "objects after pulling");
    nginx.terminate();
    wrapper.kill();
}

fn dumb(stage: &Stage) {
    let port = Stage::port();
    let repository = make_repository(stage);
    let folder = stage.path("");
    let words = ["-m", "http.server", "-d", &folder, &port.to_string()];
    let mut server = stage.server("python3", &words).listen(port);
    let url = format!("http://{}:{port}/repository.git", stage.ip());
    let clone = stage.path("clone");
    git(stage, "/", &["clone", "-q", &url, &clone]);
    assert_eq!(objects(stage, &clone), objects(stage, &repository));
    server.kill();
}
