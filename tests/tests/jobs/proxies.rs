//! One request through Varnish, stunnel twice and socat to lighttpd.

use yasmin_tests::job::{self, Job, Rings, Stage};

use crate::web::{Clients, make_pages};

#[test]
fn one_behind_the_other() {
    job::check(&Job {
        program: "Varnish, stunnel, socat, lighttpd",
        job: "one behind the other, the way between the two stunnels by TLS; every answer compared",
        needs: &["varnishd", "stunnel4", "socat", "lighttpd", "openssl", "python3"],
        is_large: true,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    make_pages(stage);
    let folder = stage.folder().display().to_string();
    let ip = stage.ip();
    let [web, relay, inner, outer, cache] = [(); 5].map(|()| Stage::port());

    // Varnish would answer by itself what it may keep.
    let config = format!(
        "server.document-root = \"{folder}/root\"\nserver.port = {web}\n\
         server.modules = (\"mod_setenv\")\n\
         setenv.add-response-header = (\"Cache-Control\" => \"no-store\")\n"
    );
    let config = stage.write("lighttpd.conf", config);
    let mut lighttpd = stage.server("lighttpd", &["-D", "-f", &config]).listen(web);

    let (from, to) = (format!("TCP-LISTEN:{relay},fork,reuseaddr"), format!("TCP:{ip}:{web}"));
    let mut socat = stage.server("socat", &[from, to]).listen(relay);

    let (key, certificate) = (stage.path("key.pem"), stage.path("certificate.pem"));
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=job"];
    let into = ["-keyout", &key, "-out", &certificate];
    stage.client("openssl", &[&make[..], &into].concat()).plain().run();
    let tunnels = [
        ("inner", inner, relay, format!("cert = {certificate}\nkey = {key}")),
        ("outer", outer, inner, "client = yes".to_owned()),
    ];
    let mut tunnels = tunnels.map(|(name, port, to, rest)| {
        let config = format!(
            "foreground = yes\npid =\nsyslog = no\n[{name}]\naccept = {port}\nconnect = {ip}:{to}\n{rest}\n"
        );
        let config = stage.write(&format!("{name}.conf"), config);
        stage.server("stunnel4", &[config]).listen(port)
    });

    let (at, behind) = (format!(":{cache}"), format!("{ip}:{outer}"));
    let words = ["-F", "-a", &at, "-b", &behind, "-n", &stage.path("varnish"), "-s", "malloc,20m"];
    let mut varnish = stage.server("varnishd", &words).listen(cache);

    let mut clients = Clients::start(stage, cache);
    for _ in 0..if job::all() { 10 } else { 2 } {
        clients.go_on();
    }
    clients.finish();
    varnish.terminate();
    for tunnel in &mut tunnels {
        tunnel.terminate();
    }
    socat.terminate();
    lighttpd.terminate();
}
