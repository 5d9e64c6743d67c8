//! The line above the table.

use indicatif::{BinaryBytes, HumanDuration};
use std::time::Duration;
use yasmin_control::status::Status;

pub fn line(status: &Status) -> String {
    let broker = &status.broker;
    format!(
        "yasmind {} (pid {}), up {}, proof by {}; {}, {}, {} of {} for rings\n\
         channels so far: {}; closed connections moved {} by ring, {} by TCP",
        broker.version,
        broker.pid,
        HumanDuration(Duration::from_secs_f64(broker.uptime_s.max(0.0))),
        broker.proof,
        counted(broker.processes as usize, "process", "processes"),
        counted(status.connections.len(), "connection", "connections"),
        BinaryBytes(broker.memory_used_bytes),
        BinaryBytes(broker.memory_limit_bytes),
        broker.channels_total,
        BinaryBytes(broker.closed_ring_bytes),
        BinaryBytes(broker.closed_tcp_bytes),
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
