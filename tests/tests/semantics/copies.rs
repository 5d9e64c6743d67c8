//! Bytes from and to everywhere, in C, for the places of the buffers.
//!
//! Holds: recv(2), send(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

#[test]
fn bytes_of_every_length_from_and_to_every_place() {
    let folder = Folder::new();
    let program = compile(&folder, "copies", &["copies.c"], &[]);
    for knobs in [Knobs::default(), Knobs::at_once().spin(300)] {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("copies", &lab.a, &program, &[]);
        assert_eq!(process.next_line().as_deref(), Some("all there"), "{knobs:?}");
        process.finish();
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}
