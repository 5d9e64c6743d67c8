//! Apache httpd: workers go and come while clients ask, in each of its three ways to wait.

use std::fs;

use yasmin_tests::job::{self, Job, Rings, Stage};
use yasmin_tests::process::eventually;
use yasmin_tests::sys::libc::SIGUSR1;

use crate::web::{Clients, make_pages};

#[test]
fn reload_under_load() {
    job::check(&Job {
        program: "Apache httpd",
        job: "event, worker and prefork, each reloaded under load by kept and new connections, every answer compared",
        needs: &["apache2", "setsid", "python3"],
        is_large: true,
        rings: Rings::Used,
        note: "Connections of one request are too short.",
        run,
    });
}

const CONFIG: &str = "
ServerRoot @FOLDER@
ServerName localhost
PidFile @MPM@.pid
Mutex file:@FOLDER@
ErrorLog @FOLDER@/@MPM@.log
LogLevel notice
User www-data
Group www-data
Listen @PORT@
LoadModule mpm_@MPM@_module /usr/lib/apache2/modules/mod_mpm_@MPM@.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DocumentRoot @FOLDER@/root
MaxKeepAliveRequests 500
";

fn run(stage: &Stage) {
    make_pages(stage);
    for way in ["event", "worker", "prefork"] {
        let port = Stage::port();
        let config = CONFIG
            .replace("@FOLDER@", &stage.folder().display().to_string())
            .replace("@MPM@", way)
            .replace("@PORT@", &port.to_string());
        let config = stage.write(&format!("{way}.conf"), config);
        // It signals its whole process group.
        let words = ["apache2", "-f", &config, "-DFOREGROUND"];
        let mut server = stage.server("setsid", &words).listen(port);
        let mut clients = Clients::start(stage, port);
        let log = stage.path(&format!("{way}.log"));
        let said = || fs::read_to_string(&log).unwrap_or_default();
        for nth in 1..=if job::all() { 10 } else { 3 } {
            clients.go_on();
            server.signal(SIGUSR1);
            let resumed =
                || (said().matches("resuming normal operations").count() > nth).then_some(());
            eventually("a reload", resumed, said);
        }
        clients.go_on();
        clients.finish();
        server.terminate();
    }
}
