//! redis-server as the tests start it.

/// Nothing goes to disk.
pub const IN_MEMORY: [&str; 4] = ["--save", "", "--appendonly", "no"];

/// The words behind `redis-server`: on `port` of all addresses, with its files in `folder`. `more`
/// say what it keeps.
pub fn words(port: u16, folder: &str, more: &[&str]) -> Vec<String> {
    let port = port.to_string();
    let common = ["--port", &port, "--dir", folder, "--protected-mode", "no"];
    [&common[..], more].concat().into_iter().map(str::to_owned).collect()
}
