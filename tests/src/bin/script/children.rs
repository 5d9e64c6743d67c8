//! Commands in forked processes.

use std::io::{BufRead, BufReader, Result, Write};
use std::sync::Arc;

use yasmin_tests::sys::{self, Forked, libc};

use crate::{Child, Script, lock, number, ok, serve, wrong};

pub fn run(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["fork", name] => {
            let (commands_in, commands_out) = sys::pipe()?;
            let (results_in, results_out) = sys::pipe()?;
            match sys::fork()? {
                Forked::Child => {
                    sys::close(commands_out)?;
                    sys::close(results_in)?;
                    *lock(&script.wires) = (commands_in, results_out);
                    serve(
                        script,
                        &mut BufReader::new(sys::file_of(commands_in)),
                        &mut sys::file_of(results_out),
                    );
                    sys::exit_child(0)
                }
                Forked::Parent { child } => {
                    sys::close(commands_in)?;
                    sys::close(results_out)?;
                    let child = Child {
                        pid: child,
                        commands: sys::file_of(commands_out),
                        results: BufReader::new(sys::file_of(results_in)),
                    };
                    lock(&script.children).insert(name.to_owned(), child);
                    Ok("ok".to_owned())
                }
            }
        }
        ["in", name, ref command @ ..] => {
            let mut children = lock(&script.children);
            let child = children.get_mut(name).ok_or_else(|| wrong(name))?;
            writeln!(child.commands, "{}", command.join(" "))?;
            child.commands.flush()?;
            let mut line = String::new();
            child.results.read_line(&mut line)?;
            Ok(if line.is_empty() { "gone".to_owned() } else { line.trim_end().to_owned() })
        }
        ["user", id] => sys::become_user(number(id)?).map(ok),
        // Without its result.
        ["tell", name, ref command @ ..] => {
            let mut children = lock(&script.children);
            let child = children.get_mut(name).ok_or_else(|| wrong(name))?;
            writeln!(child.commands, "{}", command.join(" "))?;
            child.commands.flush().map(ok)
        }
        // The result of what it was told.
        ["hear", name] => {
            let mut children = lock(&script.children);
            let child = children.get_mut(name).ok_or_else(|| wrong(name))?;
            let mut line = String::new();
            child.results.read_line(&mut line)?;
            Ok(line.trim_end().to_owned())
        }
        // It stays a zombie until it is reaped.
        ["kill", name] => {
            let pid = lock(&script.children).get(name).ok_or_else(|| wrong(name))?.pid;
            sys::kill(pid, libc::SIGKILL).map(ok)
        }
        ["reap", name] => {
            let child = lock(&script.children).remove(name).ok_or_else(|| wrong(name))?;
            drop(child.commands);
            sys::wait_child(child.pid).map(|status| status.to_string())
        }
        // Ends as daemons' parents do; the child lives on.
        ["leave", status] => sys::exit_child(number(status)?),
        _ => Err(wrong(&words.join(" "))),
    }
}
