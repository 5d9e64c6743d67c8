//! Two peers that carry out a plan's commands, on plain TCP or under the library.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;

use crate::plan::Line;
use crate::program::{End, Mood};

/// No command takes longer, but for a hang.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Stage {
    a: Process,
    b: Process,
    lab: Lab,
    /// Where everybody is, when something hangs.
    tells: bool,
    port: String,
}

impl Stage {
    pub fn new(script: &Path, net: Net, mood: Option<Mood>) -> Result<Self, String> {
        let lab = match mood {
            None => Lab::plain(net),
            Some(mood) => {
                let mut knobs = Knobs::at_once();
                // Where the other end stays with TCP, this one waits in vain, at each connection.
                knobs.promote_wait_ms = Some(500);
                if mood.messages > 0 {
                    knobs.promote_messages = Some(mood.messages);
                    knobs.promote_wait_ms = Some(20);
                }
                if !mood.spins {
                    knobs = knobs.spin(0);
                }
                if mood.chaos_permille > 0 {
                    knobs = knobs.chaos(mood.chaos_permille, mood.seed);
                }
                Lab::new(net, knobs)
            }
        };
        let a = lab.start("a", &lab.a, script, &[]);
        let b = lab.start("b", &lab.b, script, &[]);
        let mut stage = Self {
            a,
            b,
            lab,
            tells: std::env::var_os("YASMIN_DIFFERENTIAL_TELLS").is_some(),
            port: String::new(),
        };
        stage.port = stage.ask(End::A, "listen L v6")?;
        // Writing into a closed connection is an errno, not an end.
        for end in [End::A, End::B] {
            stage.ask(end, "count pipe")?;
            stage.ask(end, "hold")?;
        }
        Ok(stage)
    }

    fn peer(&mut self, end: End) -> &mut Process {
        match end {
            End::A => &mut self.a,
            End::B => &mut self.b,
        }
    }

    /// # Errors
    /// What happened instead of an answer.
    pub fn ask(&mut self, end: End, command: &str) -> Result<String, String> {
        self.peer(end).say(command);
        self.answer(end, command)
    }

    fn answer(&mut self, end: End, command: &str) -> Result<String, String> {
        match self.peer(end).line_within(PATIENCE) {
            Some(Some(line)) if line.contains("script error") => Err(format!("{command}: {line}")),
            Some(Some(line)) => Ok(line),
            Some(None) => {
                let peer = self.peer(end);
                let status = peer.wait();
                Err(format!("{command}: {end:?} ended with {status}\n{}", peer.output()))
            }
            None if self.tells => {
                Err(format!("{command}: {end:?} hangs\n{}", self.lab.registry.describe()))
            }
            None => Err(format!("{command}: {end:?} hangs")),
        }
    }

    /// Both at once: the call that offers may wait until the other side offers too.
    pub fn connect(&mut self, name: &str) -> Result<(), String> {
        let command = format!("connect {name} {} {}", self.lab.a.v4, self.port);
        self.b.say(&command);
        let accept = format!("accept L {name}");
        self.a.say(&accept);
        for (end, command) in [(End::B, &command), (End::A, &accept)] {
            let result = self.answer(end, command)?;
            if result != "ok" {
                return Err(format!("{command}: {result}"));
            }
        }
        Ok(())
    }

    /// The same without blocking. Returns what connect gave.
    ///
    /// # Errors
    /// What happened instead.
    pub fn dial(&mut self, name: &str) -> Result<String, String> {
        let command = format!("connect {name} {} {}", self.lab.a.v4, self.port);
        let result = self.ask(End::B, &command)?;
        let accept = format!("accept L {name} nonblock");
        match self.ask(End::A, &accept)?.as_str() {
            "ok" => Ok(result),
            other => Err(format!("{accept}: {other}")),
        }
    }

    fn broker(&mut self, how: &str) -> Result<String, String> {
        match (how, &mut self.lab.broker) {
            ("kill", Some(_)) => self.lab.broker = None,
            ("restart", broker) => {
                *broker = None;
                self.lab.restart_broker();
            }
            ("freeze" | "thaw", Some(broker)) => broker.freeze(how == "freeze"),
            _ => {}
        }
        Ok("ok".to_owned())
    }

    /// What goes by TCP comes late from now on, or no longer (0). The library is not to know: of
    /// a socket that is set to a rate it keeps away.
    pub fn pace(&self, bytes_per_s: u32) {
        static TOLD: Once = Once::new();
        if let Err(error) = self.lab.limit((bytes_per_s > 0).then_some(bytes_per_s)) {
            TOLD.call_once(|| eprintln!("nothing comes late: {error}"));
        }
    }

    /// Carries out what was planned. `Ok`: how far it went the same way.
    ///
    /// # Errors
    /// The first difference: its step, and in words.
    pub fn replay(&mut self, lines: &[Line]) -> Result<(), (usize, String)> {
        for (nth, line) in lines.iter().enumerate() {
            let result = if let Some(name) = line.command.strip_prefix("connect ") {
                self.connect(name).map(|_| String::new())
            } else if let Some(name) = line.command.strip_prefix("dial ") {
                self.dial(name)
            } else if let Some(how) = line.command.strip_prefix("broker ") {
                self.broker(how)
            } else if let Some(rate) = line.command.strip_prefix("pace ") {
                self.pace(rate.parse().unwrap_or(0));
                Ok(String::new())
            } else {
                self.ask(line.end, &line.command)
            };
            let is_same = match (&result, &line.result) {
                (Ok(_), None) => true,
                (Ok(got), Some(expected)) => got == expected,
                (Err(_), _) => false,
            };
            if !is_same {
                return Err((line.step, difference(&lines[..=nth], &result)));
            }
        }
        Ok(())
    }

    /// Bytes that went by ring, as far as the broker that is there now has counted.
    pub fn ring_bytes(&self) -> u64 {
        let Some(broker) = &self.lab.broker else { return 0 };
        broker.freeze(false);
        self.lab.bytes_in_all().ring
    }
}

fn difference(lines: &[Line], got: &Result<String, String>) -> String {
    let told: String = lines
        .iter()
        .map(|line| {
            let result = line.result.as_deref().unwrap_or("ok");
            format!("  {:?}: {} = {result}\n", line.end, line.command)
        })
        .collect();
    let got = match got {
        Ok(got) | Err(got) => got,
    };
    format!("after\n{told}under the library the last one gave: {got}")
}
