//! RabbitMQ: the BEAM has many scheduler threads, and waits with EPOLLONESHOT.

use yasmin_tests::job::{self, Job, Rings, Stage};

#[test]
fn confirmed_messages() {
    job::check(&Job {
        program: "RabbitMQ",
        job: "confirmed messages of many sizes to four queues, consumed and compared",
        needs: &["rabbitmq-server", "epmd", PYTHON, PIKA],
        is_large: true,
        rings: Rings::Used,
        note: "",
        run,
    });
}

/// An AMQP client with a package of its own is Debian's, and so needs Debian's Python.
const PYTHON: &str = "/usr/bin/python3";
const PIKA: &str = "/usr/lib/python3/dist-packages/pika/__init__.py";

fn run(stage: &Stage) {
    let (user, port, epmd, distribution) =
        ("rabbitmq", Stage::port(), Stage::port(), Stage::port());
    let home = stage.make_folder("home", Some(user));
    let port_text = port.to_string();
    let config = stage.write(
        "rabbitmq.conf",
        format!("listeners.tcp.1 = 0.0.0.0:{port}\nloopback_users = none\n"),
    );

    let none: [&str; 0] = [];
    let mut server = stage
        .server("rabbitmq-server", &none)
        .user(user)
        .env("HOME", &home)
        .env("RABBITMQ_NODENAME", "job@localhost")
        .env("RABBITMQ_MNESIA_BASE", format!("{home}/mnesia"))
        .env("RABBITMQ_LOG_BASE", format!("{home}/log"))
        .env("RABBITMQ_CONFIG_FILE", config)
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{home}/plugins"))
        .env("RABBITMQ_PID_FILE", format!("{home}/pid"))
        .env("RABBITMQ_NODE_PORT", &port_text)
        .env("RABBITMQ_DIST_PORT", distribution.to_string())
        .env("ERL_EPMD_PORT", epmd.to_string())
        .listen(port);
    let script = stage.write("rabbitmq.py", include_str!("rabbitmq.py"));
    let count = if job::all() { "4000" } else { "500" };
    let words = [PYTHON, &script, &stage.ip(), &port_text, count];
    let text = stage.client("env", &words).run();
    assert!(text.contains("all right"), "{text}");
    server.terminate();
}
