//! memcached: a listening thread that hands connections to others, each with its epoll set.

use yasmin_tests::job::{self, Job, Rings, Stage};

#[test]
fn values_verified() {
    job::check(&Job {
        program: "memcached",
        job: "memcaslap, text and binary, values verified; memccapable; large values by memccp",
        needs: &["memcached", "memcaslap", "memccapable", "memccp", "memccat"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let (ip, port) = (stage.ip(), Stage::port());
    let port_text = port.to_string();
    let user = if yasmin_tests::netns::allowed() { "nobody" } else { "" };
    let server = ["-p", &port_text, "-U", "0", "-t", "4", "-m", "256", "-l", &ip, "-u", user];
    let mut server = stage.server("memcached", &server).listen(port);
    let at = format!("{ip}:{port}");
    let count = if job::all() { "500000" } else { "30000" };
    for binary in [&[][..], &["-B"]] {
        let load = ["-s", &at, "-T", "2", "-c", "16", "-x", count, "-v", "1.0", "-X", "2000"];
        let text = stage.client("memcaslap", &[&load, binary].concat()).run();
        for wanted in ["verify_misses: 0", "verify_failed: 0", "get_misses: 0"] {
            assert!(text.contains(wanted), "{text}");
        }
    }
    let text = stage.client("memccapable", &["-h", &ip, "-p", &port_text]).run();
    assert!(text.contains("All tests passed"), "{text}");
    let servers = format!("--servers={at}");
    for (seed, len_bytes) in [(1, 1), (2, 70_000), (3, 1_000_000)] {
        let name = format!("value{seed}");
        let file = stage.write_pattern(&name, seed, len_bytes);
        stage.client("memccp", &[&servers, &file]).run();
        let got = stage.path("got");
        stage.client("memccat", &[&servers, &format!("--file={got}"), &name]).run();
        crate::files::assert_same(&file, &got);
    }
    server.terminate();
}
