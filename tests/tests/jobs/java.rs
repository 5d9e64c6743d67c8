//! OpenJDK: selectors, and threads whose sockets are closed under them.

use yasmin_tests::job::{self, Job, Rings, Stage};

#[test]
fn selectors_and_threads() {
    job::check(&Job {
        program: "OpenJDK",
        job: "echo by a selector and by threads, timeouts, sockets closed under a reader; compared",
        needs: &["java", "javac"],
        is_large: true,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let source = stage.write("Exchange.java", include_str!("Exchange.java"));
    let classes = stage.make_folder("classes", None);
    stage.server("javac", &["-d", &classes, &source]).plain().run();
    let port = Stage::port();
    let port_text = port.to_string();
    let java = ["-Xmx128m", "-cp", &classes, "Exchange"];
    let words = [&java[..], &["listen", &port_text]].concat();
    let mut server = stage.server("java", &words).listen(port);
    let ip = stage.ip();
    let words = [&java[..], &["connect", &ip, &port_text, "60"]].concat();
    let text = stage.client("java", &words).run();
    assert!(text.contains("all right"), "{text}");
    server.kill();
}
