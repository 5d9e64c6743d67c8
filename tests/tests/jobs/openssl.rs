//! TLS by OpenSSL: a file both ways, and through nginx and curl.

use yasmin_tests::job::{self, Job, Rings, Stage};

use crate::files;
use crate::web::start_nginx;

#[test]
fn large_files() {
    job::check(&Job {
        program: "OpenSSL",
        job: "s_client and s_server, nginx and curl: large files over TLS 1.2 and 1.3, compared",
        needs: &["openssl", "nginx", "curl", "sh"],
        is_large: false,
        rings: Rings::Used,
        note: "",
        run,
    });
}

fn run(stage: &Stage) {
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| stage.path(name));
    let subject = ["-subj", "/CN=job", "-days", "2", "-keyout", &key, "-out", &certificate];
    let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    stage.server("openssl", &[&new[..], &["-nodes"], &subject].concat()).plain().run();
    let root = stage.make_folder("root", None);
    let file = stage.write_pattern("root/large", 21, if job::all() { 64 << 20 } else { 16 << 20 });

    for version in ["-tls1_2", "-tls1_3"] {
        // What s_server gets, it prints.
        let (port, got) = (Stage::port(), stage.path("got"));
        let options = format!("-quiet -naccept 1 -accept {port} {version}");
        let line =
            format!("exec openssl s_server {options} -key {key} -cert {certificate} > {got}");
        let mut server = stage.server("sh", &["-c", &line]).listen(port);
        let connect = format!("{}:{port}", stage.ip());
        let line = format!(
            "exec openssl s_client -quiet -no_ign_eof -nocommands {version} -connect {connect} < {file}"
        );
        stage.client("sh", &["-c", &line]).run();
        server.release();
        server.finish();
        files::assert_same(&file, &got);

        // And serves files.
        let port = Stage::port();
        let options = format!("-WWW -accept {port} {version} -key {key} -cert {certificate}");
        let line = format!("cd {root} && exec openssl s_server {options}");
        let mut server = stage.server("sh", &["-c", &line]).listen(port);
        let url = format!("https://{}:{port}/large", stage.ip());
        stage.client("curl", &["-sSfk", "-o", &got, &url]).run();
        files::assert_same(&file, &got);
        server.kill();
    }

    let port = Stage::port();
    let server = format!(
        "server {{ listen @PORT@ ssl; root @FOLDER@/root; ssl_certificate {certificate};
           ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; }}"
    );
    let mut nginx = start_nginx(stage, "nginx", port, &server);
    let url = format!("https://{}:{port}/large", stage.ip());
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let got = stage.path("got");
        let twice = ["-sSfk", "-o", &got, &url, "-o", &got, &url];
        stage.client("curl", &[version, &twice].concat()).run();
        files::assert_same(&file, &got);
    }
    nginx.terminate();
}
