//! Processes that are killed while they use a connection that others share with them: wherever
//! it hits them, in the middle of a step too, the others go on.
//!
//! Holds: spec/wire.md 5.6.

use crate::check;

const KILLS: usize = 12;

#[test]
fn a_sibling_killed_while_it_sends() {
    check(|duo| {
        for nth in 0..KILLS {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.b(&format!("fork P{nth}"));
            duo.b(&format!("tell P{nth} flood {name}"));
            // Ever more, so that it is hit here and there.
            duo.a(&format!("soak {name} {}", 100_000 + 7777 * nth));
            duo.b(&format!("kill P{nth}"));
            duo.a(&format!("async S{nth} soak {name}"));
            duo.b(&format!("flood {name} 1000000"));
            duo.b(&format!("close {name}"));
            duo.a(&format!("join S{nth}"));
            duo.b(&format!("reap P{nth}"));
        }
    });
}

#[test]
fn a_sibling_killed_while_it_receives() {
    check(|duo| {
        for nth in 0..KILLS {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.b(&format!("fork P{nth}"));
            duo.b(&format!("tell P{nth} soak {name}"));
            // It takes most of this before it is killed.
            duo.a(&format!("flood {name} {}", 9_000_000 + 7777 * nth));
            duo.a(&format!("async F{nth} flood {name} 1000000"));
            duo.b(&format!("kill P{nth}"));
            duo.a(&format!("shutdown {name} wr"));
            duo.b(&format!("soak {name}"));
            duo.b(&format!("reap P{nth}"));
            duo.b(&format!("close {name}"));
            duo.quiet_a(&format!("join F{nth}"));
        }
    });
}
