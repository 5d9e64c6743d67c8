//! `yasmin completions` as a shell takes it.

use std::process::Command;

fn completions(shell: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_yasmin")).args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{shell}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = format!(
        "{}\nCOMP_WORDS=({quoted}); COMP_CWORD={}; _yasmin yasmin '{}' '{}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        completions("bash"),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["yasmin", "st"]), ["status"]);
    assert_eq!(offered(&["yasmin", "host", "le"]), ["leave"]);
    assert_eq!(offered(&["yasmin", "status", "--js"]), ["--json"]);
}

#[test]
fn what_is_not_for_people_is_not_offered() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = completions(shell);
        assert!(text.contains("status"), "{shell}");
        assert!(!text.contains("pingpong") && !text.contains("start-broker"), "{shell}");
    }
}

#[test]
fn another_shell_is_refused_in_one_line() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_yasmin")).args(["completions", "tcsh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("'tcsh'") && text.contains("zsh") && text.lines().count() == 1, "{text}");
}
