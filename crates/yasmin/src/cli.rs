//! The command line.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::oshrun::{Domain, Ticket};

/// Exit code for a command line that cannot be understood.
const USAGE: u8 = 2;

#[derive(Parser)]
#[command(name = "yasmin", version, about = "Shared-memory rings under unmodified TCP programs")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program whose TCP connections may get shared-memory rings
    Run(Run),
    /// Show every connection that the broker knows, and on a host of KVM guests who shares memory
    Status(Status),
    /// On a host of KVM guests: show who shares memory, and take it away before a guest moves
    Host(crate::host::cli::Host),
    /// Measure latency and bandwidth of rings, sockets and memory, side by side
    Bench(Bench),
    /// Run real programs over plain TCP and through rings, compare and report
    Demo(Demo),
    /// Measure which way to parallelise pays, and what each path costs
    Lab(crate::lab::cli::Lab),
    /// Place network functions on CPUs where their traffic says
    Place(Box<crate::place::cli::Place>),
    /// Make memory that programs have at one address, show it, and say who may use it
    Segment(crate::segment::cli::Segment),
    /// Show the machine's CPUs, nodes, caches and cards, and measure latencies between CPUs
    Topology(crate::topology::Topology),
    /// Run an OpenSHMEM program: what the command is when its name is oshrun
    Oshrun(Oshrun),
    /// Print what makes a shell complete these commands; `make install` and the packages install it
    Completions(Completions),
    /// An echo server and its clients, for the demo.
    #[command(hide = true, name = "pingpong")]
    PingPong(PingPong),
    /// What `yasmin run` starts to leave a broker behind that is no child of the program.
    #[command(hide = true)]
    StartBroker { yasmind: PathBuf, socket: PathBuf },
}

#[derive(Args)]
pub struct Run {
    /// Longest time in microseconds that a waiting call spins before it sleeps; 0: never spin
    #[arg(long, value_name = "N", env = "YASMIN_SPIN_US")]
    pub spin_us: Option<u32>,
    /// Most that the program may spin, in percent of one CPU, all its threads together; 0: never
    /// spin [default: no bound]
    #[arg(long, value_name = "PERCENT", env = "YASMIN_SPIN_SHARE")]
    pub spin_share: Option<u32>,
    #[command(flatten)]
    pub broker: Broker,
    /// Never start a broker; use one that listens
    #[arg(long)]
    pub no_broker: bool,
    /// Let the program set up io_uring, whose transfers pass the library by
    #[arg(long)]
    pub allow_io_uring: bool,
    /// Say nothing when the program runs without acceleration
    #[arg(short, long)]
    pub quiet: bool,
    /// Say which library and broker are used
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

#[derive(Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Oshrun {
    /// How many processing elements
    #[arg(short, visible_alias = "np", default_value_t = 1, value_name = "N")]
    #[arg(long = "n", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub n: u16,
    /// Where they run, as many in each: '.' is here, podman:NAME, docker:NAME or ssh:HOST is there;
    /// NAME is a container that runs, or one where you start what is printed
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',')]
    pub domains: Vec<Domain>,
    /// Start a domain's part of a job that another oshrun leads, as it says
    #[arg(long, value_name = "JOB:PART", conflicts_with_all = ["n", "domains"])]
    pub join: Option<Ticket>,
    /// The job's memory is this segment, as one that a host gives to several guests; one job at a time
    #[arg(long, value_name = "NAME")]
    pub segment: Option<String>,
    #[command(flatten)]
    pub broker: Broker,
    /// Never start a broker; use one that listens
    #[arg(long)]
    pub no_broker: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

#[derive(Args)]
pub struct Broker {
    /// The broker's socket
    #[arg(long, value_name = "PATH", env = yasmin_control::SOCKET_ENV)]
    pub socket: Option<PathBuf>,
}

#[derive(Args)]
pub struct Status {
    /// Print JSON; with --watch one object a line
    #[arg(long)]
    pub json: bool,
    /// Print again every second until interrupted
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Args)]
pub struct Bench {
    /// A few seconds instead of minutes, with wider spread
    #[arg(long)]
    pub quick: bool,
    /// Print JSON, with every sample
    #[arg(long)]
    pub json: bool,
    /// Draw latency and bandwidth against message size
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// The CPUs of the two sides, instead of two cores of one package
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 2)]
    pub cpus: Option<Vec<usize>>,
}

#[derive(Args)]
pub struct Demo {
    /// Where report.html and report.json go
    #[arg(long, value_name = "DIR", default_value = "yasmin-demo")]
    pub out: PathBuf,
    /// How often each program runs each way
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub pairs: Option<u16>,
    /// Two pairs of short runs: less than a minute
    #[arg(long)]
    pub quick: bool,
    /// Also scarce CPUs, idle connections, slow rates and message-passing libraries
    #[arg(long)]
    pub all: bool,
    /// Only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Also run them under the yasmin in this folder, in turn, and say what moved in every round
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PingPong {
    /// CPUs to run on
    #[arg(long, value_delimiter = ',')]
    pub cpus: Vec<usize>,
    #[command(subcommand)]
    pub role: PingPongRole,
}

#[derive(Subcommand)]
pub enum PingPongRole {
    Serve { address: SocketAddr },
    Client(PingPongClient),
    Hog,
}

#[derive(Args)]
pub struct PingPongClient {
    pub address: SocketAddr,
    #[arg(long, default_value_t = 1)]
    pub seconds: u32,
    #[arg(long, default_value_t = 64)]
    pub message_bytes: usize,
    /// Requests a second; as fast as answers come if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate_hz: Option<u32>,
    /// So many, which take turns
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// A thread for each of them, all at once
    #[arg(long, conflicts_with_all = ["rate_hz", "idle"])]
    pub threads: bool,
    /// Leaves them alone once they were busy for a moment
    #[arg(long, conflicts_with = "rate_hz")]
    pub idle: bool,
}

/// What makes the shell complete the commands, on standard output.
///
/// # Errors
/// It cannot be written.
pub fn print_completions(options: &Completions) -> anyhow::Result<()> {
    // Without those that are not for people.
    let whole = Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut command = clap::Command::new("yasmin").version("").subcommands(shown);
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, "yasmin", &mut text);
    std::io::stdout().write_all(&text).context("cannot write the completions")
}

/// Parses the command line. What cannot be understood is told in one line.
pub fn parse() -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(by_name(words)).map_err(|error| {
        let for_people = matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        if for_people {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
        eprintln!("yasmin: {}; try 'yasmin --help'", one_line(&error.render().to_string()));
        ExitCode::from(USAGE)
    })
}

/// A link to the command whose name is `oshrun` is that verb. Others' spelling of -n is known, too.
fn by_name(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_oshrun = words.first().is_some_and(|own| Path::new(own).ends_with("oshrun"));
    if is_oshrun {
        words[0] = "yasmin".into();
        words.insert(1, "oshrun".into());
    }
    if words.get(1).is_some_and(|verb| verb == "oshrun")
        && let Some(word) = words.get_mut(2).filter(|word| *word == "-np")
    {
        *word = "-n".into();
    }
    words
}

/// The first paragraph of clap's message, without its "error: " and its line breaks.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_link_named_oshrun_is_the_verb() {
        for words in [&["/x/oshrun", "-n", "3", "a", "-n"][..], &["oshrun", "-np", "3", "a", "-n"]]
        {
            let words = by_name(words.iter().map(|&word| word.into()).collect());
            let Command::Oshrun(run) = Cli::try_parse_from(words).unwrap().command else {
                panic!("not oshrun")
            };
            assert_eq!(run.n, 3);
            assert_eq!(run.program, ["a", "-n"]);
        }
    }

    #[test]
    fn options_after_the_program_are_the_programs() {
        let parsed = Cli::try_parse_from(["yasmin", "run", "-q", "ls", "-l", "--json", "--", "x"]);
        let Command::Run(run) = parsed.unwrap().command else { panic!("not run") };
        assert!(run.quiet);
        assert_eq!(run.program, ["ls", "-l", "--json", "--", "x"]);
    }

    #[test]
    fn the_separator_is_not_the_program() {
        let parsed = Cli::try_parse_from(["yasmin", "run", "--", "-odd", "-v"]);
        let Command::Run(run) = parsed.unwrap().command else { panic!("not run") };
        assert_eq!(run.program, ["-odd", "-v"]);
    }

    #[test]
    fn errors_fit_one_line() {
        let error = Cli::try_parse_from(["yasmin", "run"]).err().unwrap();
        let line = one_line(&error.render().to_string());
        assert!(!line.contains('\n') && line.contains("PROGRAM"), "{line}");
    }
}
