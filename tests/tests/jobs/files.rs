//! Files and trees that must arrive as they are.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use yasmin_tests::job::Stage;

/// Fails when two files differ, without printing them.
#[track_caller]
pub fn assert_same(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    let (a, b) = (a.as_ref(), b.as_ref());
    let [left, right] = [a, b]
        .map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    let at = left.iter().zip(&right).position(|(one, other)| one != other);
    assert!(
        left.len() == right.len() && at.is_none(),
        "{} ({} bytes) and {} ({} bytes) differ, first at {at:?}",
        a.display(),
        left.len(),
        b.display(),
        right.len()
    );
}

/// Fails when two trees differ in names, contents or links.
#[track_caller]
pub fn assert_same_trees(a: &str, b: &str) {
    let arguments = ["-r", "--no-dereference", a, b];
    let output = Command::new("diff").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the trees differ:\n{text}");
}

/// A tree with many small files, some large, links and an empty folder; gives its path.
#[track_caller]
pub fn make_tree(stage: &Stage, name: &str) -> String {
    let tree = stage.make_folder(name, None);
    for folder in 0..20u64 {
        stage.make_folder(&format!("{name}/folder{folder}"), None);
        for file in 0..20u64 {
            let len_bytes = 37 * (file * file + folder) as usize;
            stage.write_pattern(
                &format!("{name}/folder{folder}/file{file}"),
                folder * 100 + file,
                len_bytes,
            );
        }
    }
    let large = stage.write_pattern(&format!("{name}/large"), 7, 24 << 20);
    fs::set_permissions(large, fs::Permissions::from_mode(0o750)).unwrap();
    stage.make_folder(&format!("{name}/empty"), None);
    symlink("large", format!("{tree}/link")).unwrap();
    symlink("nowhere", format!("{tree}/broken")).unwrap();
    tree
}

/// The user that the tests run as.
#[track_caller]
pub fn own_name() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
