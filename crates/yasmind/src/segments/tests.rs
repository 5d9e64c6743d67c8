//! Segments of the host, whose device is a file here: it has no slices, and nobody has any.

use super::*;
use std::path::PathBuf;
use yasmin_control::segment::HOST_ADDRESSES_START;

struct Lab {
    folder: PathBuf,
    segments: Segments,
}

impl Lab {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("yasmin-segments-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let limits =
            Limits { segments: 10, budget: Budget::new(1 << 30, 1 << 30), most_bytes: 1 << 30 };
        let store = Store::open(Vec::new(), &folder.join("broker.sock"));
        let segments = Segments::recover(limits, true, store, Errands::new().unwrap());
        Self { folder, segments }
    }

    fn give(&mut self, told: &Told) -> Result<(), String> {
        let device = std::fs::File::open("/dev/null").unwrap();
        self.segments.give(told, device.into())
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut last = None;
        while let Some((name, shown)) = self.segments.next_shown(1000, last.as_ref()) {
            names.push(shown.name);
            last = Some(name);
        }
        names
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn told(text: &str, region: u64, start: u64) -> Told {
    let place = Place::new(start + 4096, 1 << 20, Kind::default()).unwrap();
    let rights = BTreeMap::from([(Whom::Everyone, Rights::Read), (Whom::User(7), Rights::Write)]);
    Told { region, domain: 3, name: name(text), place, rights }
}

#[test]
fn a_hosts_segment_is_no_users() {
    let mut lab = Lab::new("host");
    let start = HOST_ADDRESSES_START;
    lab.give(&told("table", 5, start)).unwrap();
    assert_eq!(lab.names(), ["table"]);
    let shown = lab.segments.about(1000, &name("table")).unwrap();
    assert!(shown.of_host && !shown.attached && shown.address == start + 4096);
    // Root of the guest has what everyone has: what it may do is the host's to say.
    let open = |uid, rights| {
        let holder = Holder { pid: 1, uid, rights };
        lab.segments.open(&name("table"), &holder, || None).err().unwrap()
    };
    for uid in [0, 1000] {
        assert_eq!(open(uid, Rights::Write), Refusal::Rights { has: Rights::Read });
    }
    // The device here is none.
    assert_eq!(open(7, Rights::Write), Refusal::Kernel { errno: libc::ENOTTY as u64 });
    for uid in [0, 7] {
        assert_eq!(lab.segments.remove(uid, &name("table")), Err(Refusal::OfHost));
        let allowed = lab.segments.allow(uid, &name("table"), Whom::Everyone, Rights::Write);
        assert_eq!(allowed, Err(Refusal::OfHost));
    }
    let made = lab.segments.create(7, name("table"), 4096, Kind::default(), || None);
    assert_eq!(made, Err(Refusal::OfHost));
}

#[test]
fn what_is_in_the_way_is_said() {
    let mut lab = Lab::new("way");
    lab.segments.create(7, name("own"), 4096, Kind::default(), || None).unwrap();
    let start = HOST_ADDRESSES_START;
    let why = lab.give(&told("own", 5, start)).unwrap_err();
    assert!(why.contains("has a segment of that name"), "{why}");
    lab.give(&told("table", 5, start)).unwrap();
    let why = lab.give(&told("other", 6, start)).unwrap_err();
    assert!(why.contains("is at 0x2e0000000000"), "{why}");
    // The same region, as another segment.
    let why = lab.give(&told("other", 5, start)).unwrap_err();
    assert!(why.contains("another one than it was"), "{why}");
    assert_eq!(lab.names(), ["table"]);
}

#[test]
fn a_segment_that_ends_is_unused_when_nobody_has_it() {
    let mut lab = Lab::new("ends");
    let table = told("table", 5, HOST_ADDRESSES_START);
    lab.give(&table).unwrap();
    lab.segments.end_given(5, 1);
    assert_eq!((lab.segments.unused(), lab.names().len()), (vec![(5, 1)], 0));
    // One that is not here is in nobody's hands.
    lab.segments.end_given(6, 4);
    assert_eq!(lab.segments.unused(), [(6, 4)]);
    // The host has thought better of it: other rights, at once.
    lab.give(&Told { rights: BTreeMap::new(), ..table.clone() }).unwrap();
    assert!(lab.names().is_empty());
    lab.give(&table).unwrap();
    assert_eq!(lab.names(), ["table"]);
    lab.segments.lose(5);
    assert!(lab.names().is_empty() && lab.segments.unused().is_empty());
    lab.give(&table).unwrap();
}

/// Who may write it rings elsewhere, and a ring from elsewhere is counted where its sleepers sleep.
#[test]
fn bells_ring_in_the_file_of_locks() {
    let mut lab = Lab::new("bells");
    lab.give(&told("table", 5, HOST_ADDRESSES_START)).unwrap();
    let table = name("table");
    assert_eq!(lab.segments.region_to_write(7, &table), Ok(5));
    let refusal = lab.segments.region_to_write(1000, &table);
    assert_eq!(refusal, Err(Refusal::Rights { has: Rights::Read }));
    let given = lab.segments.all.values().find_map(|segment| segment.memory.given()).unwrap();
    let file = std::fs::File::from(given.lock_file().try_clone_to_owned().unwrap());
    for (region, bell) in [(5, 0), (5, 63), (5, 63), (6, 1)] {
        lab.segments.ring(region, bell);
    }
    let mut counts = [0; 4 * yasmin_control::segment::BELLS];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut counts, 0).unwrap();
    assert_eq!((counts[0], counts[4 * 63]), (1, 2));
    assert_eq!(counts.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 3);
}

#[test]
fn members_are_asked_of_where_they_are() {
    let mut lab = Lab::new("members");
    lab.give(&told("table", 5, HOST_ADDRESSES_START)).unwrap();
    let probe = |uid, slot| lab.segments.probe(uid, &name("table"), slot);
    assert_eq!(probe(1000, 4), Err(Refusal::Rights { has: Rights::Read }));
    assert_eq!(probe(7, 4), Ok((5, Some(Life::Dead))));
    for slot in [0, 3, 5, u64::MAX - 1] {
        assert_eq!(probe(7, slot), Ok((5, None)), "{slot}");
    }
    // Its own, and no slot that there can be.
    assert_eq!(probe(7, u64::MAX - 11), Ok((5, Some(Life::Unknown))));
    let given = lab.segments.all.values().find_map(|segment| segment.memory.given()).unwrap();
    let again = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&given.lock_file()));
    let reader = std::fs::File::open(&again).unwrap();
    crate::sys::lock::set(&reader, (1 << 61) + 4).unwrap();
    assert_eq!(lab.segments.life_of(5, 4), Life::Dead);
    drop(reader);
    let member = std::fs::OpenOptions::new().read(true).write(true).open(again).unwrap();
    crate::sys::lock::set_to_write(&member, (1 << 61) + 4).unwrap();
    assert_eq!(lab.segments.life_of(5, 4), Life::Alive);
    assert_eq!(
        (lab.segments.life_of(5, 12), lab.segments.life_of(6, 4)),
        (Life::Dead, Life::Unknown)
    );
    drop(member);
    assert_eq!(lab.segments.life_of(5, 4), Life::Dead);
}

/// The host says END again in each session, and a name that it freed is anybody's.
#[test]
fn a_name_that_was_freed_and_taken_stays_its_new_owners() {
    let mut lab = Lab::new("taken");
    let table = told("table", 5, HOST_ADDRESSES_START);
    lab.give(&table).unwrap();
    // As if somebody had it still.
    let number = lab.segments.names[&table.name];
    lab.segments.names.remove(&table.name);
    lab.segments.all.get_mut(&number).unwrap().entry.is_removed = true;
    lab.segments.create(1000, table.name, 4096, Kind::default(), || None).unwrap();
    let why = lab.give(&table).unwrap_err();
    assert!(why.contains("of that name by now"), "{why}");
    lab.segments.end_given(5, 2);
    assert_eq!((lab.names(), lab.segments.unused()), (vec!["table".to_owned()], vec![(5, 2)]));
    lab.segments.lose(5);
    assert_eq!(lab.names(), ["table"]);
}

/// The kernel looks at every lock of a file for every question, and members can make any number.
#[test]
fn a_segment_full_of_locks_is_given_to_nobody() {
    let mut lab = Lab::new("locks");
    let table = name("table");
    lab.segments.create(7, table, 4096, Kind::default(), || None).unwrap();
    let open =
        |pid| lab.segments.open(&table, &Holder { pid, uid: 7, rights: Rights::Write }, || None);
    let hostile = open(1).unwrap();
    let segment = lab.segments.find(&table).unwrap();
    let mut locks = 100_000;
    // Until a question costs more than it may.
    while segment.rests_until.get().is_none() {
        assert!(locks < 10_000_000, "they cost nothing here");
        crate::sys::lock::set_every_second(&hostile.fds[0], locks).unwrap();
        drop(open(2));
        locks *= 2;
    }
    let crowded = Refusal::Kernel { errno: libc::ENOLCK as u64 };
    let rests = || segment.rests_until.set(Some(Instant::now() + Duration::from_secs(60)));
    rests();
    assert_eq!(open(3).err(), Some(crowded));
    let about = lab.segments.about(7, &table).unwrap();
    assert!(about.attached && about.more_holders && about.holders.is_empty());
    // Who made them ends.
    drop(hostile);
    segment.rests_until.set(None);
    assert!(open(4).is_ok());
}
