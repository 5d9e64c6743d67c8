//! Objects that are loaded with RTLD_DEEPBIND, as PHP loads its extensions. In C, for the linker.
//!
//! Holds: dlopen(3).

use yasmin_tests::lab::{Folder, Knobs};

use crate::c::{check_all_there, compile};

#[track_caller]
fn check(how: &str, options: &[&str]) {
    let folder = Folder::new();
    let options: Vec<_> = ["-shared", "-fPIC"].iter().chain(options).copied().collect();
    let object = compile(&folder, "deep_plugin.so", &["deep_plugin.c"], &options);
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("deep", &[how, &object.display().to_string()], &moods);
}

#[test]
fn an_object_bound_to_libc_that_was_there_before() {
    check("early", &["-Wl,-z,lazy"]);
}

#[test]
fn an_object_bound_to_libc_that_comes_later() {
    check("late", &["-Wl,-z,lazy"]);
}

#[test]
fn an_object_bound_to_libc_whose_bindings_are_sealed() {
    check("early", &["-Wl,-z,relro,-z,now"]);
    check("late", &["-Wl,-z,relro,-z,now"]);
}
