//! What a plan does to packets: a queue before each function, and a price for each hop.
//!
//! A function takes a packet in a service time: work of its own, and accesses to lines that its
//! predecessor wrote, each as long as the hop is far. Further accesses overlap with the work on
//! other packets: they delay, but do not occupy. Arrivals are Poisson's, service times of one
//! CPU nearly equal (M/D/1), queues end at a number of packets; what does not fit is lost.
//!
//! Calibrated to Apostolopoulos (NTUA 2021): 81.7 ns within a node and 163 ns between two, 30 to
//! 40 % more latency at 1 Gbit/s when every hop is remote, twice to three times at 4 Gbit/s, and
//! loss a Gbit/s earlier. With packets of 512 bytes that leaves two accesses that are waited
//! for, and one and a half that are not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use yasmin_topology::CpuId;

use crate::chain::check;
use crate::{Chain, Error, FunctionId, Host, Plan, Unit};

/// What an access within a node takes on the source's machine, and one between nodes.
pub const LOCAL_NS: f64 = 81.7;
pub const REMOTE_NS: f64 = 163.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Work on a packet without its accesses to memory.
    pub base_ns: f64,
    /// Accesses that the function waits for.
    pub waited: f64,
    /// Accesses that overlap with other work.
    pub overlapped: f64,
    pub packet_bytes: f64,
    /// Packets that wait before a function at most.
    pub queue_packets: f64,
    /// Nanoseconds of an access for each unit of the host's distances.
    pub ns_per_distance: f64,
}

/// How a chain fares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fare {
    /// Of a packet that passes, from card to card.
    pub latency_ns: f64,
    /// Part of the packets that pass.
    pub passed: f64,
}

/// A function's visit by one chain.
struct Visit {
    chain: usize,
    cpu: CpuId,
    service_ns: f64,
    transit_ns: f64,
}

impl Model {
    /// For a host whose distances are nanoseconds.
    pub fn nanoseconds() -> Self {
        Self {
            base_ns: 581.6,
            waited: 2.0,
            overlapped: 1.5,
            packet_bytes: 512.0,
            queue_packets: 1024.0,
            ns_per_distance: 1.0,
        }
    }

    /// For any host: the nearest access is taken to be as long as on the source's machine.
    pub fn of(host: &Host) -> Self {
        let nearest = host.distance.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        Self { ns_per_distance: LOCAL_NS / nearest, ..Self::nanoseconds() }
    }

    fn packets_ns(&self, chain: &Chain) -> f64 {
        let packets = match chain.traffic.unit {
            Unit::Bytes => chain.traffic.rate / self.packet_bytes,
            Unit::Packets => chain.traffic.rate,
        };
        packets * 1e-9
    }

    /// The visits in the order of the chains, and for each chain what the way out takes.
    fn visits(
        &self,
        host: &Host,
        chains: &[Chain],
        plan: &Plan,
    ) -> Result<(Vec<Visit>, Vec<f64>), Error> {
        host.check()?;
        check(host, chains)?;
        let mut visits = Vec::new();
        let mut out = Vec::new();
        for (at, chain) in chains.iter().enumerate() {
            let mut before = chain.entry.place(host)?;
            for seat in chain.functions.iter().filter_map(|id| plan.seat(*id)) {
                let place = host.place(seat.node).ok_or(Error::UnknownNode(seat.node))?;
                let access = host.distance[before.unwrap_or(place)][place] * self.ns_per_distance;
                visits.push(Visit {
                    chain: at,
                    cpu: seat.cpu,
                    service_ns: self.base_ns + self.waited * access,
                    transit_ns: self.overlapped * access,
                });
                before = Some(place);
            }
            let hop = before.zip(chain.exit.place(host)?);
            let access = hop.map_or(0.0, |(from, to)| host.distance[from][to]);
            out.push(self.overlapped * access * self.ns_per_distance);
        }
        Ok((visits, out))
    }

    /// How each chain fares at its present traffic.
    pub fn fares(&self, host: &Host, chains: &[Chain], plan: &Plan) -> Result<Vec<Fare>, Error> {
        let (visits, out) = self.visits(host, chains, plan)?;
        let offered: Vec<f64> = chains.iter().map(|chain| self.packets_ns(chain)).collect();
        // What is lost at one function does not load the next; a few rounds settle that, also
        // where chains share CPUs.
        let mut passes = vec![1.0; visits.len()];
        let mut load: BTreeMap<CpuId, (f64, f64)> = BTreeMap::new();
        for _ in 0..32 {
            load.clear();
            let mut arriving = offered.clone();
            for (visit, passes) in visits.iter().zip(&passes) {
                let (busy, packets) = load.entry(visit.cpu).or_default();
                *busy += arriving[visit.chain] * visit.service_ns;
                *packets += arriving[visit.chain];
                arriving[visit.chain] *= passes;
            }
            for (visit, passes) in visits.iter().zip(&mut passes) {
                *passes = (1.0 / load[&visit.cpu].0.max(1.0)).min(1.0);
            }
        }
        let mut fares: Vec<Fare> =
            out.into_iter().map(|latency_ns| Fare { latency_ns, passed: 1.0 }).collect();
        for (visit, passes) in visits.iter().zip(&passes) {
            let (busy, packets) = load[&visit.cpu];
            let mean_ns = if packets > 0.0 { busy / packets } else { visit.service_ns };
            let longest = self.queue_packets * mean_ns;
            let wait = if busy < 1.0 { busy * mean_ns / (2.0 * (1.0 - busy)) } else { longest };
            let fare = &mut fares[visit.chain];
            fare.latency_ns += visit.service_ns + visit.transit_ns + wait.min(longest);
            fare.passed *= passes;
        }
        Ok(fares)
    }

    /// How many times the present traffic could pass before the first packet is lost, all chains
    /// growing alike. Infinite without traffic.
    pub fn headroom(&self, host: &Host, chains: &[Chain], plan: &Plan) -> Result<f64, Error> {
        let (visits, _) = self.visits(host, chains, plan)?;
        let mut load: BTreeMap<CpuId, f64> = BTreeMap::new();
        for visit in visits {
            let packets = self.packets_ns(&chains[visit.chain]);
            *load.entry(visit.cpu).or_default() += packets * visit.service_ns;
        }
        Ok(1.0 / load.into_values().fold(0.0, f64::max))
    }

    /// Bytes a second that one function takes at most, each packet over a hop so far.
    pub fn capacity_bytes_s(&self, distance: f64) -> f64 {
        let access = distance * self.ns_per_distance;
        self.packet_bytes * 1e9 / (self.base_ns + self.waited * access)
    }

    /// Part of a second's packets that a function loses while it is moved, and what the wait
    /// adds to the mean latency of the others.
    pub fn pause(&self, chain: &Chain, pause_s: f64) -> Fare {
        let packets_s = self.packets_ns(chain) * 1e9;
        let waiting = (packets_s * pause_s).min(self.queue_packets);
        let lost = if packets_s > 0.0 { pause_s - waiting / packets_s } else { 0.0 };
        let latency_ns =
            if packets_s > 0.0 { waiting / packets_s * (pause_s / 2.0) * 1e9 } else { 0.0 };
        Fare { latency_ns, passed: 1.0 - lost }
    }

    /// The chains that a function is in.
    pub fn chains_of(chains: &[Chain], function: FunctionId) -> impl Iterator<Item = usize> {
        let in_it =
            move |(at, chain): (usize, &Chain)| chain.functions.contains(&function).then_some(at);
        chains.iter().enumerate().filter_map(in_it)
    }
}
