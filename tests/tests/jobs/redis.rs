//! redis: snapshots in forked children, and a replica.

use yasmin_tests::job::{self, Job, Rings, Stage};
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::redis;

#[test]
fn persistence_and_replication() {
    job::check(&Job {
        program: "redis",
        job: "load during BGSAVE, AOF rewrite and replication; digests of master, replica, \
              and of what restarts from the dump and from the AOF",
        needs: &["redis-server", "redis-cli", "redis-benchmark"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

struct Server {
    process: Process,
    port: String,
    ip: String,
}

fn start(stage: &Stage, is_master: bool, folder: &str, port: u16, more: &[&str]) -> Server {
    let more = [&["--enable-debug-command", "yes"], more].concat();
    let words = redis::words(port, folder, &more);
    let line = if is_master {
        stage.server("redis-server", &words)
    } else {
        stage.client("redis-server", &words)
    };
    let site = if is_master { &stage.lab.a } else { &stage.lab.b };
    Server { process: line.listen(port), port: port.to_string(), ip: site.v4().to_string() }
}

/// One command, from the clients' site.
#[track_caller]
fn ask(stage: &Stage, server: &Server, words: &[&str]) -> String {
    let at = ["-h", &server.ip, "-p", &server.port];
    stage.client("redis-cli", &[&at, words].concat()).run().trim().to_owned()
}

#[track_caller]
fn await_info(stage: &Stage, server: &Server, section: &str, wanted: &str) {
    let info = || ask(stage, server, &["info", section]);
    eventually(wanted, || info().contains(wanted).then_some(()), info);
}

fn run(stage: &Stage) {
    let (master_port, replica_port) = (Stage::port(), Stage::port());
    let [master_folder, replica_folder] =
        ["master", "replica"].map(|name| stage.make_folder(name, None));
    // One of the transfers to the replica goes through a file, the other through a pipe.
    let is_diskless = if matches!(stage.way, job::Way::Forced) { "no" } else { "yes" };
    let diskless = ["--repl-diskless-sync", is_diskless, "--repl-diskless-sync-delay", "0"];
    let master = ["--appendonly", "yes", "--appendfsync", "no", "--save", ""];
    let mut master =
        start(stage, true, &master_folder, master_port, &[&master[..], &diskless].concat());
    ask(stage, &master, &["debug", "populate", "20000", "key", "1000"]);

    let at = ["-h", &master.ip, "-p", &master.port];
    let count = if job::all() { "1000000" } else { "20000" };
    let load = ["-q", "-n", count, "-c", "20", "-r", "5000", "-d", "300"];
    let kinds = ["-t", "set,incr,lpush,sadd,hset,zadd"];
    let benchmark = |more: &[&str]| {
        stage.client("redis-benchmark", &[&at[..], &load, &kinds, more].concat()).start()
    };

    let mut loads = benchmark(&[]);
    loads.release();
    let replicaof = [&["--replicaof", &master.ip, &master.port][..], &redis::IN_MEMORY].concat();
    let mut replica = start(stage, false, &replica_folder, replica_port, &replicaof);
    for word in ["bgsave", "bgrewriteaof"] {
        ask(stage, &master, &[word]);
        await_info(stage, &master, "persistence", "rdb_bgsave_in_progress:0");
        await_info(stage, &master, "persistence", "aof_rewrite_in_progress:0");
    }
    await_info(stage, &master, "persistence", "rdb_last_bgsave_status:ok");
    await_info(stage, &master, "persistence", "aof_last_bgrewrite_status:ok");
    loads.finish();
    let mut loads = benchmark(&["-P", "16"]);
    loads.release();
    loads.finish();

    await_info(stage, &replica, "replication", "master_link_status:up");
    let acknowledged = ask(stage, &master, &["wait", "1", "20000"]);
    assert_eq!(acknowledged, "1", "the replica has not followed");
    let digest = |server: &Server| ask(stage, server, &["debug", "digest"]);
    let expected = digest(&master);
    assert!(expected.len() == 40 && !expected.starts_with("000000"), "digest {expected}");
    assert_eq!(digest(&replica), expected, "the replica differs");
    assert_eq!(
        ask(stage, &master, &["dbsize"]),
        ask(stage, &replica, &["dbsize"]),
        "numbers of keys"
    );

    ask(stage, &replica, &["bgsave"]);
    await_info(stage, &replica, "persistence", "rdb_bgsave_in_progress:0");
    replica.process.terminate();
    let mut restored = start(stage, false, &replica_folder, replica_port, &redis::IN_MEMORY);
    await_info(stage, &restored, "persistence", "\nloading:0");
    assert_eq!(digest(&restored), expected, "what the replica's dump restores differs");
    restored.process.terminate();
    master.process.terminate();
    let again = ["--appendonly", "yes", "--save", ""];
    let mut again = start(stage, true, &master_folder, master_port, &again);
    await_info(stage, &again, "persistence", "\nloading:0");
    assert_eq!(digest(&again), expected, "what the AOF restores differs");
    again.process.terminate();
}
