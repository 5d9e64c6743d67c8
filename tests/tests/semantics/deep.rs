//! Functions of libc that the linker gives past the usual order: to objects that are loaded with RTLD_DEEPBIND,
//! as PHP loads its extensions, and by libc's own handle. In C, for the linker.
//!
//! Holds: dlopen(3), dlsym(3).

use yasmin_tests::lab::{Folder, Knobs};

use crate::c::{check_all_there, check_all_there_with, compile};

fn moods() -> [Knobs; 3] {
    let at_once = Knobs::at_once;
    [Knobs::default(), at_once(), at_once().chaos(100, 3)]
}

#[track_caller]
fn check(how: &str, options: &[&str]) {
    let folder = Folder::new();
    let options: Vec<_> = ["-shared", "-fPIC"].iter().chain(options).copied().collect();
    let object = compile(&folder, "deep_plugin.so", &["deep_plugin.c"], &options);
    check_all_there("deep", &[how, &object.display().to_string()], &moods());
}

#[test]
fn an_object_bound_to_libc_that_was_there_before() {
    check("early", &["-Wl,-z,lazy"]);
}

#[test]
fn an_object_bound_to_libc_that_comes_later() {
    check("late", &["-Wl,-z,lazy"]);
    check("moved", &["-Wl,-z,lazy"]);
}

#[test]
fn an_object_bound_to_libc_whose_bindings_are_sealed() {
    check("early", &["-Wl,-z,relro,-z,now"]);
    check("late", &["-Wl,-z,relro,-z,now"]);
}

/// Before the library has looked the object through.
#[test]
fn an_object_that_keeps_pointers_to_functions() {
    for how in ["keeps-address", "early-address", "keeps-next", "keeps-default"] {
        check(how, &["-Wl,-z,lazy"]);
    }
    check("plain-next", &[]);
    check("plain-default", &[]);
    check("keeps-address", &["-Wl,-z,relro,-z,now"]);
}

/// As ClickHouse and Seastar have one, whose first call looks libc's up.
#[test]
fn a_program_with_a_dl_iterate_phdr_of_its_own() {
    check_all_there_with("own_iterator", &["-rdynamic"], &[], &moods());
}

#[test]
fn functions_looked_up_in_libcs_own_handle() {
    check_all_there("deep", &["handle", "libc.so.6"], &moods());
}
