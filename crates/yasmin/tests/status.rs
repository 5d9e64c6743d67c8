//! `yasmin status` as a user sees it.

mod installed;

use installed::{Answer, Installed};

const STATUS: &str = r#"{
  "broker": {"version": "0.1.0", "pid": 7, "uptime_s": 1.5, "proof": "bpf", "processes": 2,
    "memory_used_bytes": 8192, "memory_limit_bytes": 1048576, "channels_total": 1,
    "closed_ring_bytes": 0, "closed_tcp_bytes": 0},
  "connections": [{"reason": null, "memory_bytes": 8192, "age_s": 1.0, "ends": [
    {"program": "iperf3", "pid": 8, "role": "connector", "local": "10.0.0.1:1", "peer": "10.0.0.2:2",
     "sends": {"state": "open", "ring_size_bytes": 4096, "ring_bytes": 1073741824, "tcp_bytes": 5,
               "rate_bytes_s": 1e9, "parked": 3}}]}]
}"#;

#[test]
fn json_is_what_the_broker_said() {
    let yasmin = Installed::new();
    yasmin.fake_broker(Answer::Status(STATUS.to_owned()));
    let output = yasmin.status(&["--json"]);
    assert!(output.status.success());
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told: serde_json::Value = serde_json::from_str(STATUS).unwrap();
    assert_eq!(printed, told);
}

#[test]
fn the_table_is_for_people() {
    let yasmin = Installed::new();
    yasmin.fake_broker(Answer::Status(STATUS.to_owned()));
    let output = yasmin.status(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["iperf3", "10.0.0.1:1", "open", "1.00 GiB", "5 B", "pid 7"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn whatever_is_wrong_with_the_broker_is_one_line() {
    let expected = [
        (None, "no broker listens"),
        (Some(Answer::Refuse { version: 9 }), "version 9"),
        (Some(Answer::Welcome), "something else"),
        (Some(Answer::Garbage), "no sense"),
        (Some(Answer::HangUp), "does not answer"),
        (Some(Answer::Status("{".to_owned())), "cannot be read"),
    ];
    for (answer, words) in expected {
        let yasmin = Installed::new();
        if let Some(answer) = answer {
            yasmin.fake_broker(answer);
        }
        let output = yasmin.status(&["--json"]);
        assert_eq!(output.status.code(), Some(1), "{words}");
        let line = installed::one_line(&output);
        assert!(line.contains(words), "{line}");
        assert!(output.stdout.is_empty());
    }
}
