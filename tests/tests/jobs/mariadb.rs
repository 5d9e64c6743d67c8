//! MariaDB: a thread for each connection; linked with liburing, which is refused.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};

#[test]
fn statements_load_dump_restore() {
    job::check(&Job {
        program: "MariaDB",
        job: "small statements; slap with 8 clients; wide rows summed; dump, restore, dumps compared",
        needs: &["mariadbd", "mariadb", "mariadb-install-db", "mariadb-dump", "mariadb-slap"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let (user, port) = ("daemon", Stage::port());
    let data = stage.make_folder("data", Some(user));
    let folder = format!("--datadir={data}");
    let install =
        ["--no-defaults", &folder, "--skip-test-db", "--auth-root-authentication-method=normal"];
    stage.server("mariadb-install-db", &install).plain().user(user).run();
    let port_text = format!("--port={port}");
    let socket = format!("--socket={data}/socket");
    let server = [
        "--no-defaults",
        &folder,
        &socket,
        &port_text,
        "--bind-address=0.0.0.0",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
        "--skip-grant-tables",
    ];
    let mut server = stage.server("mariadbd", &server).user(user).listen(port);

    let host = format!("--host={}", stage.ip());
    let at = ["--no-defaults", &host, &port_text, "--protocol=tcp", "--user=root"];
    let client = |name: &str, words: &[&str]| stage.client(name, &[&at, words].concat()).run();
    let sql = |query: &str| client("mariadb", &["--batch", "--skip-column-names", "-e", query]);

    // One statement after the other, each answered before the next.
    let count = if job::all() { 20_000 } else { 2000 };
    let statements: String = (1..=count).map(|n| format!("select {n};\n")).collect();
    let path = stage.path("statements.sql");
    fs::write(&path, statements).unwrap();
    let told = sql(&format!("source {path}"));
    let expected: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
    assert!(
        told.lines().eq(expected.iter().map(String::as_str)),
        "answers differ: {} bytes",
        told.len()
    );

    let queries = format!("--number-of-queries={count}");
    let load = ["--auto-generate-sql", "--concurrency=8", &queries, "--detach=50"];
    let text = client("mariadb-slap", &load);
    assert!(text.contains("Number of clients running queries: 8"), "{text}");

    sql("create database wide; create table wide.rows (n int primary key, text longtext)");
    sql("set @@max_recursive_iterations = 1000; insert into wide.rows \
         select seq, repeat(md5(seq), 400) from wide.seq_1_to_500");
    sql("insert into wide.rows select 0, repeat(md5(7), 200000)");
    let sums = |database: &str| {
        sql(&format!("select count(*), sum(length(text)), sum(crc32(text)) from {database}.rows"))
    };
    let before = sums("wide");
    assert!(before.starts_with("501\t"), "{before}");
    let dumps = ["dump", "again"].map(|name| stage.path(name));
    let dump = |database: &str, to: &str| {
        let result = format!("--result-file={to}");
        client("mariadb-dump", &["--skip-comments", &result, database])
    };
    dump("wide", &dumps[0]);
    sql("create database copy");
    client("mariadb", &["copy", "-e", &format!("source {}", dumps[0])]);
    assert_eq!(sums("copy"), before);
    dump("copy", &dumps[1]);
    let [first, second] = dumps.map(|path| fs::read(path).unwrap());
    assert!(first.len() > 10 << 20, "the dump has {} bytes", first.len());
    assert!(first == second, "the dump of the restored database differs");

    let status = server.terminate();
    assert!(status.success(), "mariadbd ended with {status}:\n{}", server.output());
}
