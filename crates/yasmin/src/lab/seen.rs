//! What commands need of a report that an earlier run wrote.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::report::FORMAT;

#[derive(Deserialize)]
pub struct Seen {
    format: u32,
    pub environment: serde_json::Map<String, serde_json::Value>,
    pub outcomes: Vec<SeenOutcome>,
}

#[derive(Deserialize)]
pub struct SeenOutcome {
    pub name: String,
    pub kernel: String,
    pub arguments: Vec<String>,
    pub placement: String,
    pub model: String,
    pub path: String,
    pub workers: u32,
    pub proven: bool,
    pub seconds: Option<SeenSpread>,
    #[serde(default)]
    pub points: Vec<SeenSize>,
}

#[derive(Deserialize)]
pub struct SeenSize {
    pub len_bytes: u64,
    pub latency_ns: SeenSpread,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct SeenSpread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// # Errors
/// When there is no such file, when it is no report, and when its format is another one.
pub fn read(path: &Path) -> anyhow::Result<Seen> {
    let file = path.display();
    let text = fs::read_to_string(path).with_context(|| {
        format!("cannot read {file}; yasmin lab --quick --only pingpong,heat makes a report")
    })?;
    let reader = &mut serde_json::Deserializer::from_str(&text);
    let seen: Seen = serde_path_to_error::deserialize(reader)
        .with_context(|| format!("{file} is no report of the lab"))?;
    if seen.format != FORMAT {
        bail!("{file}: format {} is not {FORMAT}, which this command reads", seen.format);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_no_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert!(format!("{:#}", read(&path).err().unwrap()).contains("x.json"));
        fs::write(&path, r#"{"format": 1, "environment": {}}"#).unwrap();
        assert!(format!("{:#}", read(&path).err().unwrap()).contains("outcomes"));
        fs::write(&path, r#"{"format": 99, "environment": {}, "outcomes": []}"#).unwrap();
        assert!(format!("{:#}", read(&path).err().unwrap()).contains("99"));
    }
}
