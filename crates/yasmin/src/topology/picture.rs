//! The machine as SVG: nodes with their cores, memory, caches and cards; beside them, if
//! measured, the latency between every two CPUs as a heat map.

use std::collections::BTreeMap;

use indicatif::BinaryBytes;
use plotters::prelude::*;
use plotters::style::full_palette::{AMBER_300, GREY_200, GREY_500, GREY_700};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use yasmin_topology::{Cpu, CpuId, Latencies, Machine, Node};

use super::shade;
use yasmin_measure::figure;
use yasmin_measure::plot::{Area, Error, failed};

const FONT: &str = "sans-serif";
const NODE_WIDTH: i32 = 420;
const CPU_WIDTH: i32 = 34;
const CPU_HEIGHT: i32 = 24;
const LINE: i32 = 20;
const GAP: i32 = 14;
/// Of the heat map, at most.
const MAP: i32 = 640;
/// Nodes beside each other at most.
const ACROSS: usize = 2;

pub fn draw(machine: &Machine, latencies: Option<&Latencies>) -> Result<String, Error> {
    let across = machine.nodes.len().clamp(1, ACROSS);
    let heights: Vec<i32> = machine
        .nodes
        .chunks(across)
        .map(|row| row.iter().map(|node| height(machine, node)).max().unwrap_or(0) + GAP)
        .collect();
    let machine_width = across as i32 * (NODE_WIDTH + GAP) + GAP;
    let machine_height = heights.iter().sum::<i32>() + 2 * LINE + GAP;
    let map = latencies.map_or(0, |_| MAP + 2 * GAP);
    let size = (machine_width + map, machine_height.max(map));
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let title = format!("{} CPUs, {} nodes", machine.cpus.len(), machine.nodes.len());
        text(&area, &title, (GAP, GAP), 16, HPos::Left)?;
        let mut top = 2 * LINE;
        for (row, height) in machine.nodes.chunks(across).zip(&heights) {
            for (at, node) in row.iter().enumerate() {
                let left = GAP + at as i32 * (NODE_WIDTH + GAP);
                draw_node(&area, machine, node, (left, top), height - GAP)?;
            }
            top += height;
        }
        if let Some(latencies) = latencies {
            draw_map(&area, machine, latencies, (machine_width, 2 * LINE))?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn text(area: &Area<'_>, what: &str, at: (i32, i32), size: u32, from: HPos) -> Result<(), Error> {
    let style = (FONT, size).into_font().color(&BLACK).pos(Pos::new(from, VPos::Top));
    area.draw_text(what, &style, at).map_err(failed)
}

fn cores<'a>(machine: &'a Machine, node: &Node) -> BTreeMap<u32, Vec<&'a Cpu>> {
    let mut cores: BTreeMap<u32, Vec<&Cpu>> = BTreeMap::new();
    for cpu in node.cpus.iter().filter_map(|id| machine.cpu(*id)) {
        cores.entry(cpu.core).or_default().push(cpu);
    }
    cores
}

/// Cores in a line of a node, by their threads.
fn per_line(threads: usize) -> usize {
    let width = threads.max(1) as i32 * CPU_WIDTH + 6;
    ((NODE_WIDTH - GAP) / width).max(1) as usize
}

fn height(machine: &Machine, node: &Node) -> i32 {
    let cores = cores(machine, node);
    let threads = cores.values().map(Vec::len).max().unwrap_or(1);
    let lines = cores.len().div_ceil(per_line(threads)) as i32;
    let cards = machine.nics.iter().filter(|nic| nic.node == Some(node.id)).count() as i32;
    2 * LINE + lines * (CPU_HEIGHT + 6) + cards * LINE + GAP
}

fn draw_node(
    area: &Area<'_>,
    machine: &Machine,
    node: &Node,
    (left, top): (i32, i32),
    height: i32,
) -> Result<(), Error> {
    let corners = [(left, top), (left + NODE_WIDTH, top + height)];
    area.draw(&Rectangle::new(corners, shade(node.id).filled())).map_err(failed)?;
    let heading = format!("node {}, {}", node.id, BinaryBytes(node.memory_bytes));
    text(area, &heading, (left + 8, top + 4), 14, HPos::Left)?;
    let cache = node.cpus.first().and_then(|id| machine.cpu(*id)).and_then(|cpu| cpu.caches.last());
    if let Some(cache) = cache.map(|at| &machine.caches[*at]) {
        let told = format!("L{} {}", cache.level, BinaryBytes(cache.size_bytes));
        text(area, &told, (left + NODE_WIDTH - 8, top + 4), 13, HPos::Right)?;
    }
    let free = machine.free();
    let cores = cores(machine, node);
    let threads = cores.values().map(Vec::len).max().unwrap_or(1);
    let across = per_line(threads);
    let mut bottom = top + LINE + 6;
    for (at, cpus) in cores.values().enumerate() {
        let x = left + 8 + (at % across) as i32 * (threads as i32 * CPU_WIDTH + 6);
        let y = top + LINE + 6 + (at / across) as i32 * (CPU_HEIGHT + 6);
        bottom = y + CPU_HEIGHT + 6;
        for (thread, cpu) in cpus.iter().enumerate() {
            let x = x + thread as i32 * CPU_WIDTH;
            let ends = [(x, y), (x + CPU_WIDTH, y + CPU_HEIGHT)];
            let fill = if machine.pinned.contains(&cpu.id) {
                AMBER_300
            } else if free.contains(&cpu.id) {
                WHITE
            } else {
                GREY_200
            };
            area.draw(&Rectangle::new(ends, fill.filled())).map_err(failed)?;
            area.draw(&Rectangle::new(ends, GREY_700)).map_err(failed)?;
            let middle = (x + CPU_WIDTH / 2, y + 5);
            text(area, &cpu.id.to_string(), middle, 12, HPos::Center)?;
        }
    }
    for nic in machine.nics.iter().filter(|nic| nic.node == Some(node.id)) {
        let pci = nic.pci.as_deref().unwrap_or("");
        text(area, &format!("card {} {pci}", nic.name), (left + 8, bottom + 2), 13, HPos::Left)?;
        bottom += LINE;
    }
    Ok(())
}

/// CPUs in order of their nodes and cores, so that blocks show.
fn draw_map(
    area: &Area<'_>,
    machine: &Machine,
    latencies: &Latencies,
    (left, top): (i32, i32),
) -> Result<(), Error> {
    let mut cpus: Vec<&Cpu> = machine.cpus.iter().collect();
    let measured = |id: CpuId| latencies.pairs.iter().any(|p| p.first == id || p.second == id);
    cpus.retain(|cpu| measured(cpu.id));
    cpus.sort_by_key(|cpu| (cpu.node, cpu.core, cpu.id));
    let values = || latencies.pairs.iter().map(|pair| pair.ns);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    let cell = ((MAP - 3 * LINE) / cpus.len().max(1) as i32).clamp(4, 60);
    let (x0, y0) = (left + 2 * LINE, top + LINE);
    let mut known = BTreeMap::new();
    for pair in &latencies.pairs {
        known.insert((pair.first, pair.second), pair.ns);
        known.insert((pair.second, pair.first), pair.ns);
    }
    for (row, one) in cpus.iter().enumerate() {
        let y = y0 + row as i32 * cell;
        if cell >= 12 {
            text(area, &one.id.to_string(), (x0 - 6, y + cell / 2 - 6), 12, HPos::Right)?;
            let x = x0 + row as i32 * cell + cell / 2;
            text(area, &one.id.to_string(), (x, top), 12, HPos::Center)?;
        }
        for (column, other) in cpus.iter().enumerate() {
            let x = x0 + column as i32 * cell;
            let ends = [(x, y), (x + cell, y + cell)];
            let Some(ns) = known.get(&(one.id, other.id)) else {
                area.draw(&Rectangle::new(ends, GREY_200.filled())).map_err(failed)?;
                continue;
            };
            let part = if high > low { (ns - low) / (high - low) } else { 0.0 };
            area.draw(&Rectangle::new(ends, heat(part).filled())).map_err(failed)?;
            if cell >= 30 {
                let at = (x + cell / 2, y + cell / 2 - 6);
                text(area, &format!("{ns:.0}"), at, 12, HPos::Center)?;
            }
        }
    }
    let bottom = y0 + cpus.len() as i32 * cell + GAP;
    let (median, worst) = latencies.repeatability();
    let legend = format!(
        "cache line, one way: {} to {}; passes {:.0} % apart, at worst {:.0} %",
        figure::nanoseconds(low),
        figure::nanoseconds(high),
        100.0 * median,
        100.0 * worst
    );
    area.draw(&PathElement::new([(x0, bottom), (left + MAP, bottom)], GREY_500)).map_err(failed)?;
    text(area, &legend, (x0, bottom + 4), 13, HPos::Left)
}

/// From pale to dark, readable in grey too.
fn heat(part: f64) -> RGBColor {
    let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * part) as u8;
    RGBColor(mix(255, 215), mix(247, 60), mix(220, 45))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_and_card_is_drawn() {
        let mut machine = Machine::from_synthetic("node:3 core:5 pu:2").unwrap();
        machine.nics.push(yasmin_topology::Nic {
            name: "enp1s0".to_owned(),
            node: Some(yasmin_topology::NodeId(2)),
            pci: None,
        });
        let svg = draw(&machine, None).unwrap();
        for cpu in &machine.cpus {
            assert!(svg.contains(&format!("\n{}\n", cpu.id)), "CPU {}", cpu.id);
        }
        assert!(svg.contains("enp1s0"));
    }

    #[test]
    fn latencies_are_drawn() {
        let machine = Machine::from_synthetic("node:1 core:2 pu:1").unwrap();
        let pair = yasmin_topology::PairLatency {
            first: CpuId(0),
            second: CpuId(1),
            ns: 57.4,
            min_ns: 57.0,
            max_ns: 58.0,
        };
        let svg = draw(&machine, Some(&Latencies { pairs: vec![pair] })).unwrap();
        assert!(svg.contains("57") && svg.contains("cache line"));
    }
}
