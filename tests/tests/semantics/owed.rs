//! A broker that does not get round to it hears later of ends that were closed.
//!
//! Holds: spec/wire.md 6.2.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::eventually;

use crate::c::compile;

/// More than its socket takes at once. It is stopped meanwhile, or only busy.
#[test]
fn ends_that_are_closed_at_once() {
    for stops in [true, false] {
        let folder = Folder::new();
        let program = compile(&folder, "owed", &["owed.c"], &[]);
        let lab = Lab::new(Net::Loopback, Knobs::default());
        let mut process = lab.start("owed", &lab.a, &program, &[]);
        let freeze = |frozen| match &lab.broker {
            Some(broker) if stops => broker.freeze(frozen),
            _ => {}
        };
        process.expect("many");
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
        freeze(true);
        process.say("go on");
        process.expect("closed");
        freeze(false);
        process.say("go on");
        process.expect("others");
        if let Some(broker) = &lab.broker {
            let is_free = || {
                let status = broker.status();
                (status.connections.is_empty() && status.broker.memory_used_bytes == 0)
                    .then_some(())
            };
            let left = || format!("{} connections left", broker.status().connections.len());
            eventually("all are released", is_free, left);
        }
        process.say("go on");
        process.expect("all there");
        process.finish();
    }
}
