//! The live view: the machine drawn, the chains on it, and what was done last.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use ratatui::{DefaultTerminal, Frame};
use yasmin_watch::discover::Found;
use yasmin_watch::watch::Watch;

const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];

const NOTES: usize = 100;

/// A CPU's field, wide enough for a number and the beginning of a name.
const SEAT_COLUMNS: u16 = 18;

pub struct View {
    terminal: DefaultTerminal,
    notes: VecDeque<String>,
}

impl View {
    /// How often keys are looked for.
    pub const FRAME: Duration = Duration::from_millis(100);

    pub fn open() -> anyhow::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()?, notes: VecDeque::new() })
    }

    pub fn note(&mut self, line: &str) {
        self.notes.truncate(NOTES - 1);
        self.notes.push_front(line.to_owned());
    }

    /// Draws; true when the user wants to stop.
    pub fn show(&mut self, watch: &Watch) -> anyhow::Result<bool> {
        let notes = &self.notes;
        self.terminal.draw(|frame| draw(frame, watch, notes))?;
        while event::poll(Duration::ZERO)? {
            // In raw mode ^C is a key.
            if let Event::Key(key) = event::read()?
                && (key.code == KeyCode::Char('q')
                    || (key.code == KeyCode::Char('c')
                        && key.modifiers.contains(KeyModifiers::CONTROL)))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn draw(frame: &mut Frame, watch: &Watch, notes: &VecDeque<String>) {
    let machine = watch.engine().machine();
    let columns = (frame.area().width.saturating_sub(2) / SEAT_COLUMNS).max(1) as usize;
    let rows = |cpus: usize| cpus.div_ceil(columns) as u16 + 2;
    let tall = machine.nodes.iter().map(|node| rows(node.cpus.len())).sum();
    let parts = Layout::vertical([
        Constraint::Max(tall),
        Constraint::Fill(1),
        Constraint::Max(10),
        Constraint::Length(1),
    ]);
    let [nodes, chains, log, foot] = parts.areas(frame.area());
    draw_nodes(frame, nodes, watch, columns);
    let lines: Vec<Line> =
        watch.engine().chains().iter().enumerate().map(|(at, one)| chain(at, one)).collect();
    let block = Block::bordered().title(" chains ");
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), chains);
    let lines: Vec<Line> = notes.iter().map(|note| Line::from(note.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" done ")), log);
    let counts = watch.counts;
    let text = format!(
        " {:.0} s, {} looks, {} plans, {} moves, {} failures.  q: stop, and put everything back",
        watch.at_s(),
        counts.looks,
        counts.plans,
        counts.moves,
        counts.failures
    );
    frame.render_widget(Line::from(text).dim(), foot);
}

fn draw_nodes(frame: &mut Frame, area: Rect, watch: &Watch, columns: usize) {
    let engine = watch.engine();
    let machine = engine.machine();
    let mut colours: BTreeMap<&str, Color> = BTreeMap::new();
    for (at, chain) in engine.chains().iter().enumerate() {
        for name in &chain.functions {
            colours.entry(name).or_insert(COLOURS[at % COLOURS.len()]);
        }
    }
    let mut seated: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, cpu) in engine.pinned() {
        seated.entry(cpu.0).or_default().push(name);
    }
    let heights = machine
        .nodes
        .iter()
        .map(|node| Constraint::Length(node.cpus.len().div_ceil(columns) as u16 + 2));
    let areas = Layout::vertical(heights).split(area);
    for (node, area) in machine.nodes.iter().zip(areas.iter()) {
        let cards = machine.nics.iter().filter(|nic| nic.node == Some(node.id));
        let cards: Vec<&str> = cards.map(|nic| nic.name.as_str()).collect();
        let cards =
            if cards.is_empty() { String::new() } else { format!(", {}", cards.join(", ")) };
        let block = Block::bordered().title(format!(" node {}{cards} ", node.id));
        let seats: Vec<Span> = node
            .cpus
            .iter()
            .map(|cpu| seat(cpu.0, seated.get(&cpu.0), machine.pinned.contains(cpu), &colours))
            .collect();
        let lines: Vec<Line> = seats.chunks(columns).map(|row| Line::from(row.to_vec())).collect();
        frame.render_widget(Paragraph::new(lines).block(block), *area);
    }
}

fn seat<'a>(
    cpu: u32,
    functions: Option<&Vec<&str>>,
    is_taken: bool,
    colours: &BTreeMap<&str, Color>,
) -> Span<'a> {
    let width = SEAT_COLUMNS as usize;
    let (text, style) = match functions.map(Vec::as_slice) {
        Some([name]) => {
            let colour = colours.get(name).copied().unwrap_or_default();
            (format!("{cpu:>3} {name}"), Style::new().fg(colour).bold())
        }
        Some([first, rest @ ..]) => {
            (format!("{cpu:>3} {first} +{}", rest.len()), Style::new().fg(Color::Red).bold())
        }
        _ if is_taken => (format!("{cpu:>3} (others)"), Style::new().dim()),
        _ => (format!("{cpu:>3} -"), Style::new().dim()),
    };
    let text: String = text.chars().take(width - 1).collect();
    Span::styled(format!("{text:<width$}"), style)
}

fn chain<'a>(at: usize, chain: &Found) -> Line<'a> {
    let colour = Style::new().fg(COLOURS[at % COLOURS.len()]);
    let mut parts: Vec<String> = chain.entry.iter().cloned().collect();
    parts.extend(chain.functions.iter().cloned());
    parts.extend(chain.exit.iter().cloned());
    let rate = indicatif::HumanBytes(chain.rate as u64);
    Line::from(vec![
        Span::styled(format!("{:>12}/s  ", rate.to_string()), Style::new().bold()),
        Span::styled(parts.join(" > "), colour),
    ])
}

#[cfg(test)]
mod tests;
