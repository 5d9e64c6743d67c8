//! Other programs that inherit connections: this one again, with the library or without.
//!
//! What a program must know goes by its arguments: the words that hold positions, where its
//! commands come from, and the objects whose descriptors it inherits.

use std::io::{BufReader, Result};
use std::sync::atomic::AtomicU64;

use yasmin_tests::sys::{self, Fd, Image};

use crate::{Child, Object, Script, Stream, WORDS, lock, number, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["exec", ref how @ ..] => {
            let wires = *lock(&script.wires);
            sys::set_close_on_exec(wires.0, false)?;
            sys::set_close_on_exec(wires.1, false)?;
            Err(sys::exec(&image(script, wires, how)?))
        }
        // Another program altogether, which prints lines.
        ["become", path, name] => Err(sys::exec(&stranger(script, path, name)?)),
        // The same, by posix_spawn, until it ends.
        ["start", path, name] => {
            let child = sys::spawn(&stranger(script, path, name)?)?;
            Ok(sys::wait_child(child)?.to_string())
        }
        [start @ ("spawn" | "vspawn"), name, ref how @ ..] => {
            let (commands_in, commands_out) = sys::pipe()?;
            let (results_in, results_out) = sys::pipe()?;
            sys::set_close_on_exec(commands_in, false)?;
            sys::set_close_on_exec(results_out, false)?;
            let image = image(script, (commands_in, results_out), how)?;
            let pid = if start == "spawn" {
                sys::spawn(&image)?
            } else {
                let inherits =
                    if how.contains(&"closing") { script.inheritable() } else { Vec::new() };
                let closes: Vec<Fd> = inherits.into_iter().map(|(_, object)| object.fd).collect();
                sys::vfork_exec(&image, &closes)?
            };
            sys::close(commands_in)?;
            sys::close(results_out)?;
            let mut child = Child {
                pid,
                commands: sys::file_of(commands_out),
                results: BufReader::new(sys::file_of(results_in)),
            };
            // The program says that it is there.
            let mut line = String::new();
            std::io::BufRead::read_line(&mut child.results, &mut line)?;
            lock(&script.children).insert(name.to_owned(), child);
            Ok(line.trim_end().to_owned())
        }
        ["system", ref command @ ..] => {
            sys::system(&command.join(" ")).map(|status| status.to_string())
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

impl Script {
    /// In the order of their names: both runs of a scenario do the same.
    fn inheritable(&self) -> Vec<(String, Object)> {
        let objects = lock(&self.objects);
        let mut all: Vec<_> = objects
            .iter()
            .filter(|(_, object)| sys::closes_on_exec(object.fd).is_ok_and(|closes| !closes))
            .map(|(name, object)| (name.clone(), *object))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// This program with all that it inherits; `plain`: without the library.
fn image(script: &Script, (commands, results): (Fd, Fd), how: &[&str]) -> Result<Image> {
    let mut arguments = vec![std::env::current_exe()?.display().to_string()];
    if how.contains(&"missing") {
        arguments[0].push_str(".missing");
    }
    for number in [script.words_fd, commands, results] {
        arguments.push(number.to_string());
    }
    if !how.contains(&"closing") {
        let objects = script.inheritable();
        arguments.extend(objects.iter().map(|(name, object)| describe(name, *object)));
    }
    let plain = how.contains(&"plain");
    let environment: Vec<String> = std::env::vars()
        .filter(|(name, _)| !(plain && name == "LD_PRELOAD"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    Image::new(&arguments, &environment)
}

pub fn describe(name: &str, object: Object) -> String {
    let fd = object.fd;
    match object.streams {
        None => format!("{name}:{fd}"),
        Some((sends, receives)) => {
            let [a, b] = [sends, receives].map(|stream| format!("{}:{}", stream.seed, stream.nth));
            format!("{name}:{fd}:{a}:{b}")
        }
    }
}

pub fn object(text: &str, words: &'static [AtomicU64]) -> Result<(String, Object)> {
    let parts: Vec<&str> = text.split(':').collect();
    let stream = |seed: &str, nth: &str| {
        Ok::<_, std::io::Error>(Stream::new(number(seed)?, number(nth)?, words))
    };
    match *parts {
        [name, fd] => Ok((name.to_owned(), Object { fd: number(fd)?, streams: None })),
        [name, fd, seed, nth, other_seed, other_nth] => {
            let streams = Some((stream(seed, nth)?, stream(other_seed, other_nth)?));
            Ok((name.to_owned(), Object { fd: number(fd)?, streams }))
        }
        _ => Err(wrong(text)),
    }
}

/// The other side of `image`; says that it is there.
pub fn resume(arguments: &[String]) -> Result<Script> {
    let [words_fd, commands, results, objects @ ..] = arguments else {
        return Err(wrong(&arguments.join(" ")));
    };
    let words_fd = number(words_fd)?;
    let words = sys::inherited_words(words_fd, WORDS)?;
    let wires = (number(commands)?, number(results)?);
    let script = Script::with(words_fd, words, wires);
    for text in objects {
        let (name, object) = object(text, words)?;
        script.add(&name, object);
    }
    sys::write(wires.1, b"ok\n")?;
    Ok(script)
}

/// The program at `path`, which gets the object's descriptor.
fn stranger(script: &Script, path: &str, name: &str) -> Result<Image> {
    let fd = script.object(name)?.fd.to_string();
    let environment: Vec<String> =
        std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    Image::new(&[path.to_owned(), fd], &environment)
}
