//! PostgreSQL: accepts in one process and serves in another.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};

const CONFIG: &str = "
listen_addresses = '*'
fsync = off
max_connections = 40
shared_buffers = 32MB
";

#[test]
fn pgbench_dump_restore() {
    job::check(&Job {
        program: "PostgreSQL",
        job: "pgbench, three protocols; sums of its tables; dump, restore, dumps compared",
        needs: &["initdb", "postgres", "pgbench", "psql", "pg_dump"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let (user, port) = ("postgres", Stage::port());
    let data = stage.make_folder("data", Some(user));
    let init = ["-D", &data, "-U", user, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"];
    stage.server("initdb", &init).plain().user(user).run();
    let append = |name: &str, text: &str| {
        let path = format!("{data}/{name}");
        let old = fs::read_to_string(&path).unwrap();
        fs::write(&path, old + text).unwrap();
    };
    append("postgresql.conf", CONFIG);
    append("pg_hba.conf", "\nhost all all all trust\n");
    let sockets = format!("unix_socket_directories={data}");
    let port_text = port.to_string();
    let server = ["-D", &data, "-p", &port_text, "-c", &sockets];
    let mut server = stage.server("postgres", &server).user(user).listen(port);
    // It listens before it lets anybody in.
    let ip = stage.ip();
    let ready = format!("until pg_isready -q -h {ip} -p {port}; do sleep 0.1; done");
    stage.client("sh", &["-c", &ready]).plain().run();

    let at = ["-h", &ip, "-p", &port_text, "-U", user];
    let client = |name: &str, words: &[&str]| stage.client(name, &[&at, words].concat()).run();
    let sql = |query: &str| client("psql", &["-AtqX", "-v", "ON_ERROR_STOP=1", "-c", query, user]);

    client("pgbench", &["-q", "-i", "-s", "2", user]);
    let transactions = if job::all() { "3000" } else { "300" };
    for protocol in ["simple", "extended", "prepared"] {
        let load = ["-n", "-M", protocol, "-c", "8", "-j", "2", "-t", transactions, user];
        let text = client("pgbench", &load);
        assert!(text.contains("number of failed transactions: 0 (0.000%)"), "{text}");
        let all = 8 * transactions.parse::<u32>().unwrap();
        assert!(text.contains(&format!("processed: {all}/{all}")), "{text}");
    }
    client("pgbench", &["-n", "-S", "-c", "4", "-t", "3000", user]);
    // Each transaction adds its delta to one row of every table, and to the history.
    let sums = sql("select (select sum(abalance) from pgbench_accounts), \
         (select sum(bbalance) from pgbench_branches), \
         (select sum(tbalance) from pgbench_tellers), \
         (select sum(delta) from pgbench_history), \
         (select count(*) from pgbench_history)");
    let sums: Vec<&str> = sums.trim().split('|').collect();
    assert!(sums[..4].iter().all(|sum| *sum == sums[0]), "sums differ: {sums:?}");
    assert_eq!(sums[4].parse::<u32>().unwrap(), 3 * 8 * transactions.parse::<u32>().unwrap());

    // Wide rows, one larger than any buffer.
    sql("create table wide as select n, repeat(md5(n::text), 400) as text \
         from generate_series(1, 500) n");
    sql("insert into wide select 0, string_agg(md5(n::text), '') \
         from generate_series(1, 200000) n");
    let dumps = ["dump", "again"].map(|name| stage.path(name));
    client("pg_dump", &["-f", &dumps[0], user]);
    sql("create database copy");
    let restore = ["-qX", "-v", "ON_ERROR_STOP=1", "-f", &dumps[0], "copy"];
    client("psql", &restore);
    client("pg_dump", &["-f", &dumps[1], "copy"]);
    // Newer versions put a random word into each dump.
    let [first, second] = dumps.map(|path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
    });
    assert!(first.len() > 20 << 20, "the dump has {} bytes", first.len());
    assert!(first == second, "the dump of the restored database differs");

    server.interrupt();
    let status = server.wait();
    assert!(status.success(), "postgres ended with {status}:\n{}", server.output());
}
