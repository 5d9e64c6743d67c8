//! A folder whose names are listed again only when its time of change says that they may be
//! others.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub struct Folder {
    path: PathBuf,
    /// When it had changed last as of the listing; unknown where a later change could bear the
    /// same time.
    changed: Option<SystemTime>,
    names: Vec<String>,
}

/// Clocks of file systems are coarse: within so long two changes may bear the same time.
const COARSE: Duration = Duration::from_secs(1);

impl Folder {
    pub fn new(path: PathBuf) -> Self {
        Self { path, changed: None, names: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In order; none where there is no such folder.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// True when it was listed anew: something may have come, gone or taken another's place.
    pub fn look(&mut self) -> bool {
        let Ok(changed) = std::fs::metadata(&self.path).and_then(|data| data.modified()) else {
            self.changed = None;
            let had = !self.names.is_empty();
            self.names.clear();
            return had;
        };
        if self.changed == Some(changed) {
            return false;
        }
        // A time to come would be one that a clock was set back from.
        let age = SystemTime::now().duration_since(changed);
        self.changed = age.is_ok_and(|age| age > COARSE).then_some(changed);
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        self.names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        self.names.sort_unstable();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// As if the last change had been an hour ago.
    fn age(path: &Path) {
        let then = SystemTime::now() - Duration::from_secs(3600);
        File::open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn it_is_listed_again_when_it_has_changed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        let mut folder = Folder::new(path.clone());
        assert!(!folder.look());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("b"), "").unwrap();
        age(&path);
        assert!(folder.look());
        assert!(!folder.look());
        fs::write(path.join("a"), "").unwrap();
        assert!(folder.look());
        assert_eq!(folder.names(), ["a", "b"]);
        // So soon after a change the next one may bear the same time.
        assert!(folder.look());
        fs::remove_dir_all(&path).unwrap();
        assert!(folder.look());
        assert!(folder.names().is_empty());
    }
}
