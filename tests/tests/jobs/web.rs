//! Checked web clients, and nginx's configuration.

use yasmin_tests::job::Stage;
use yasmin_tests::netns::allowed;
use yasmin_tests::process::Process;

/// Pages that `root` gets: name, size.
const PAGES: [(&str, usize); 3] = [("small", 100), ("page", 20_000), ("large", 500_000)];

/// Makes the pages; gives the folder.
pub fn make_pages(stage: &Stage) -> String {
    let folder = stage.make_folder("root", None);
    for (seed, (name, len_bytes)) in PAGES.into_iter().enumerate() {
        stage.write_pattern(&format!("root/{name}"), seed as u64, len_bytes);
    }
    folder
}

/// Clients that ask for all pages, over and over.
pub struct Clients {
    processes: Vec<Process>,
}

impl Clients {
    #[track_caller]
    pub fn start(stage: &Stage, port: u16) -> Self {
        let script = stage.write("web.py", include_str!("web.py"));
        let (ip, port, root) = (stage.ip(), port.to_string(), stage.path("root"));
        let words = [&script, &ip, &port, &root, "4", "small", "page", "small", "page", "large"];
        // Two: a Python process uses one CPU at most.
        let processes = (0..2).map(|_| stage.client("python3", &words).start()).collect();
        Self { processes }
    }

    /// Waits until each has got some hundreds of answers more.
    #[track_caller]
    pub fn go_on(&mut self) {
        for process in &mut self.processes {
            process.expect("answers");
        }
    }

    /// No request has failed; gives the names of the servers that answered.
    #[track_caller]
    pub fn finish(mut self) -> Vec<String> {
        let mut servers = Vec::new();
        for process in &mut self.processes {
            process.release();
            let mut last = String::new();
            while let Some(line) = process.next_line() {
                if let Some(server) = line.strip_prefix("server ") {
                    servers.push(server.split(' ').next().unwrap_or_default().to_owned());
                }
                last = line;
            }
            process.finish();
            assert!(last.starts_with("failed 0 "), "requests failed:\n{}", process.output());
        }
        servers.sort();
        servers.dedup();
        servers
    }
}

const NGINX: &str = "
daemon off; pid @FOLDER@/@NAME@.pid; error_log @FOLDER@/@NAME@.log notice;
@USER@
worker_processes 2;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000;
  client_body_temp_path @FOLDER@/@NAME@-body; proxy_temp_path @FOLDER@/@NAME@-proxy;
  fastcgi_temp_path @FOLDER@/@NAME@-fastcgi; uwsgi_temp_path @FOLDER@/@NAME@-uwsgi;
  scgi_temp_path @FOLDER@/@NAME@-scgi; client_max_body_size 0;
  add_header X-Server @NAME@;
  @SERVER@
}
";

/// nginx with one server block, on `port`.
#[track_caller]
pub fn start_nginx(stage: &Stage, name: &str, port: u16, server: &str) -> Process {
    let folder = stage.folder().display().to_string();
    let user = if allowed() { "user www-data;" } else { "" };
    let config = NGINX
        .replace("@SERVER@", server)
        .replace("@FOLDER@", &folder)
        .replace("@NAME@", name)
        .replace("@USER@", user)
        .replace("@PORT@", &port.to_string());
    let config = stage.write(&format!("{name}.conf"), config);
    let log = format!("{folder}/{name}.log");
    stage.server("nginx", &["-c", &config, "-e", &log]).listen(port)
}
