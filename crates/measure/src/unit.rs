//! What a measured figure is, and which way is better.

use serde::Serialize;

use crate::figure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    BitsPerSecond,
    PerSecond,
    Nanoseconds,
    /// Of one CPU.
    CpuPercent,
    Bytes,
}

impl Unit {
    pub fn show(self, value: f64) -> String {
        match self {
            Self::BitsPerSecond => figure::bits_s(value),
            Self::PerSecond => figure::per_second(value),
            Self::Nanoseconds => figure::nanoseconds(value),
            Self::CpuPercent => format!("{value:.2} %"),
            Self::Bytes => figure::bytes(value),
        }
    }

    /// What a better figure looks like.
    pub fn direction(self) -> &'static str {
        match self {
            Self::Nanoseconds | Self::CpuPercent | Self::Bytes => "less is better",
            Self::BitsPerSecond | Self::PerSecond => "more is better",
        }
    }

    /// How many times better `new` is than `old`.
    pub fn gain(self, old: f64, new: f64) -> f64 {
        match self {
            Self::BitsPerSecond | Self::PerSecond => new / old,
            Self::Nanoseconds | Self::CpuPercent | Self::Bytes => old / new,
        }
    }
}
