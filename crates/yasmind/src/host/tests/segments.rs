//! Segments that guests share.

use super::*;
use std::collections::{BTreeMap, HashSet};
use yasmin_control::host::{Right, SegmentAsk, SegmentGuest, SegmentStatus};
use yasmin_control::segment::{HOST_ADDRESSES_START, Name, Place, Rights, Whom};
use yasmin_control::uplink::Life;

/// What a guest's broker knows of segments.
#[derive(Default)]
pub struct Guest {
    told: HashMap<u64, Told>,
    /// Programs have them.
    used: HashSet<u64>,
    /// Slots of members that live, and what was heard of those in other guests.
    alive: HashSet<u64>,
    lives: Vec<(u64, Life)>,
    rung: Vec<(u64, u8)>,
}

struct Told {
    domain: u8,
    place: Place,
    name: Option<Name>,
    rights: BTreeMap<Whom, Rights>,
    end: Option<u64>,
}

impl Guest {
    pub fn understand(&mut self, message: FromHost) -> Vec<ToHost> {
        match message {
            FromHost::Segment { region, domain, place } => {
                let told = Told { domain, place, name: None, rights: BTreeMap::new(), end: None };
                self.told.insert(region, told);
            }
            FromHost::Name { region, name } => self.of(region).name = Some(name),
            FromHost::Rights { region, whom, rights } => {
                self.of(region).rights.insert(whom, rights);
            }
            FromHost::End { region, number } => {
                self.of(region).end = Some(number);
                return self.unused(region).into_iter().collect();
            }
            FromHost::Probe { id, slot, .. } => {
                let life = if self.alive.contains(&slot) { Life::Alive } else { Life::Dead };
                return vec![ToHost::Life { id, life }];
            }
            FromHost::Life { id, life } => self.lives.push((id, life)),
            FromHost::Ring { region, bell } => self.rung.push((region, bell)),
            other => panic!("{other:?}"),
        }
        Vec::new()
    }

    fn of(&mut self, region: u64) -> &mut Told {
        self.told.get_mut(&region).unwrap()
    }

    fn unused(&self, region: u64) -> Option<ToHost> {
        let number = self.told.get(&region)?.end?;
        (!self.used.contains(&region)).then_some(ToHost::Unused { region, number })
    }

    pub fn gone(&mut self, region: u64) {
        self.told.remove(&region);
        assert!(!self.used.remove(&region), "it was taken from under a program");
    }

    /// Of the only one that programs here may open.
    fn only(&self) -> Option<(u64, &Told)> {
        let mut all = self.told.iter().filter(|(_, told)| told.end.is_none());
        let (&region, told) = all.next()?;
        assert!(all.next().is_none());
        Some((region, told))
    }
}

fn right(guest: &str, user: Option<u32>, rights: &str) -> Right {
    Right { guest: guest.to_owned(), user, rights: rights.to_owned() }
}

fn create(name: &str, size_bytes: u64, rights: &[Right]) -> Ask {
    Ask::Segment(SegmentAsk::Create { name: name.to_owned(), size_bytes, rights: rights.to_vec() })
}

fn allow(rights: &[Right]) -> Ask {
    Ask::Segment(SegmentAsk::Allow { name: "table".to_owned(), rights: rights.to_vec() })
}

fn remove(force: bool) -> Ask {
    Ask::Segment(SegmentAsk::Remove { name: "table".to_owned(), force })
}

impl Lab {
    /// Asks, and gives what was refused.
    fn want(&mut self, ask: &Ask) -> Result<(), String> {
        let mut socket = self.ask(ask);
        self.turns(2);
        match answer(&mut socket) {
            Some(Answer::Done) => Ok(()),
            Some(Answer::Refused(why)) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    /// With "table" in guests a, which may write it, and b, which may read it.
    fn with_segment(name: &str) -> Self {
        let mut lab = Self::of(3, name);
        lab.turns(100);
        let rights = [right("a", None, "write"), right("b", None, "read")];
        lab.want(&create("table", 1 << 20, &rights)).unwrap();
        lab.turns(50);
        lab
    }

    fn segment(&mut self) -> SegmentStatus {
        self.status().segments.pop().unwrap()
    }

    fn states(&mut self) -> Vec<String> {
        self.segment().guests.into_iter().map(|guest| guest.state).collect()
    }

    /// A program in the guest has it, or lets go of it.
    fn use_in(&mut self, guest: usize, is_used: bool) {
        let machine = &mut self.machines[guest];
        let region = *machine.segments.told.keys().next().unwrap();
        if is_used {
            machine.segments.used.insert(region);
        } else {
            machine.segments.used.remove(&region);
            if let Some(message) = machine.segments.unused(region) {
                machine.say(message);
            }
        }
        self.turns(30);
    }

    fn objects(&self, guest: usize) -> Vec<&str> {
        let objects = self.machines[guest].objects.iter();
        objects.map(|object| object.rsplit_once('-').unwrap().1).collect()
    }
}

#[test]
fn a_segment_is_in_its_guests_with_their_rights() {
    let mut lab = Lab::with_segment("segment");
    let heard: Vec<_> = lab.machines.iter().map(|machine| machine.segments.only()).collect();
    let (region, told) = heard[0].unwrap();
    assert_eq!((told.domain, told.name), (0, Name::new("table")));
    assert_eq!(told.place.start(), HOST_ADDRESSES_START);
    assert_eq!(told.rights, BTreeMap::from([(Whom::Everyone, Rights::Write)]));
    let (other, told) = heard[1].unwrap();
    assert_eq!((other, told.domain, told.place.start()), (region, 1, HOST_ADDRESSES_START));
    assert_eq!(told.rights, BTreeMap::from([(Whom::Everyone, Rights::Read)]));
    assert!(heard[2].is_none() && lab.machines[2].devices.is_empty());
    assert_eq!((lab.objects(0), lab.objects(1)), (vec!["memory"], vec!["rom"]));
    assert_eq!(lab.states(), ["ready", "ready"]);
    // A user of its own; no memory moves for that.
    lab.want(&allow(&[right("b", Some(7), "read"), right("b", None, "none")])).unwrap();
    let told = lab.machines[1].segments.only().unwrap().1;
    assert_eq!(told.rights, BTreeMap::from([(Whom::User(7), Rights::Read)]));
    assert_eq!(lab.states(), ["ready", "ready"]);
}

#[test]
fn a_segment_goes_when_nobody_has_it_any_more() {
    let mut lab = Lab::with_segment("segment-goes");
    lab.use_in(0, true);
    let path = lab.host.segments[0].path.clone();
    lab.want(&remove(false)).unwrap();
    lab.turns(50);
    // b had no program that has it.
    assert_eq!(lab.states(), ["going", "absent"]);
    assert!(lab.machines[1].devices.is_empty() && lab.segment().is_removed);
    assert!(lab.machines[0].segments.only().is_none());
    lab.want(&remove(false)).unwrap_err();
    lab.use_in(0, false);
    assert!(lab.status().segments.is_empty() && lab.machines[0].objects.is_empty());
    assert!(!path.exists() && !path.with_extension("json").exists());
    // Its name is free, its addresses are used again late.
    lab.want(&create("table", 4096, &[right("a", None, "write")])).unwrap();
    lab.turns(50);
    let told = lab.machines[0].segments.only().unwrap().1;
    assert!(told.place.start() > HOST_ADDRESSES_START);
}

#[test]
fn rights_to_write_change_when_nobody_has_it() {
    let mut lab = Lab::with_segment("segment-rights");
    lab.use_in(1, true);
    lab.want(&allow(&[right("b", None, "write"), right("c", None, "read")])).unwrap();
    lab.turns(50);
    assert_eq!(lab.states(), ["ready", "going", "ready"]);
    assert_eq!(lab.objects(1), ["rom"]);
    lab.use_in(1, false);
    lab.turns(50);
    assert_eq!((lab.states(), lab.objects(1)), (vec!["ready".to_owned(); 3], vec!["memory"]));
    lab.want(&allow(&[right("a", None, "none")])).unwrap();
    lab.turns(50);
    assert_eq!(lab.states(), ["absent", "ready", "ready"]);
    assert!(lab.machines[0].objects.is_empty());
    lab.want(&allow(&[right("a", Some(0), "write")])).unwrap();
    lab.turns(50);
    // It is the same guest to the others as before.
    assert_eq!(lab.machines[0].segments.only().unwrap().1.domain, 0);
}

#[test]
fn a_change_of_mind_leaves_it_where_it_is() {
    let mut lab = Lab::with_segment("segment-mind");
    lab.use_in(0, true);
    let device = lab.machines[0].devices.clone();
    lab.want(&allow(&[right("a", None, "none")])).unwrap();
    lab.turns(20);
    assert!(lab.machines[0].segments.only().is_none());
    lab.want(&allow(&[right("a", None, "write")])).unwrap();
    lab.turns(20);
    assert!(lab.machines[0].segments.only().is_some());
    // What answers the end before does not count.
    let region = lab.host.segments[0].number;
    lab.machines[0].say(ToHost::Unused { region, number: 1 });
    lab.turns(20);
    assert_eq!((lab.states()[0].as_str(), &lab.machines[0].devices), ("ready", &device));
}

#[test]
fn another_broker_goes_on_with_segments() {
    let mut lab = Lab::with_segment("segment-again");
    lab.use_in(0, true);
    let devices: Vec<_> = lab.machines.iter().map(|machine| machine.devices.clone()).collect();
    lab.host_again();
    for machine in &mut lab.machines {
        machine.qmp.stream = None;
        machine.port.stream = None;
    }
    lab.turns(100);
    assert_eq!(lab.states(), ["ready", "ready"]);
    assert!(lab.machines.iter().map(|machine| &machine.devices).eq(&devices));
    lab.want(&remove(false)).unwrap();
    lab.turns(50);
    assert_eq!(lab.states(), ["going", "absent"]);
    // And one more, while it goes.
    lab.host_again();
    for machine in &mut lab.machines {
        machine.qmp.stream = None;
        machine.port.stream = None;
    }
    lab.turns(100);
    assert_eq!(lab.states(), ["going", "absent"]);
    lab.use_in(0, false);
    assert!(lab.status().segments.is_empty());
}

/// Guests of libvirt and Xen are known when they are told of.
#[test]
fn a_guest_that_comes_after_the_broker_has_its_segments() {
    let mut lab = Lab::with_segment("segment-later");
    let folder = lab.folder.clone();
    lab.host = Lab::host(&folder, &lab.args, &lab.machines[..1]);
    lab.machines[1] = Machine::new(&folder, "b");
    lab.turns(100);
    assert_eq!(lab.states(), ["ready", "absent"]);
    let begun = domain::Begun {
        qemu_pid: 0,
        port: Stream::new(lab.machines[1].port.path.clone(), Instant::now()),
        monitor: UnixStream::connect(&lab.machines[1].qmp.path).unwrap(),
    };
    let came = Domain {
        name: "b".into(),
        monitor: Monitor::Libvirt,
        slots: vec!["pci.9".into()],
        begun: Some(begun),
    };
    lab.host.meet(came, lab.now);
    lab.turns(100);
    assert_eq!(lab.states(), ["ready", "ready"]);
}

#[test]
fn a_broker_that_ends_leaves_segments() {
    let mut lab = Lab::with_segment("segment-ends");
    lab.use_in(0, true);
    lab.connect();
    let path = lab.host.segments[0].path.clone();
    lab.host.is_ending = true;
    lab.turns(100);
    lab.host.remove_files();
    assert!(lab.host.is_empty() && path.exists());
    assert_eq!(lab.machines[0].objects.len(), 1);
}

#[test]
fn a_guest_moves_when_no_program_has_a_segment() {
    let mut lab = Lab::with_segment("segment-leaves");
    lab.use_in(0, true);
    let mut socket = lab.ask(&leave(&["a"], 1));
    lab.turns(60);
    let Some(Answer::Refused(why)) = answer(&mut socket) else { panic!("it may not move") };
    assert!(why.contains("programs in guest a still have segment table"), "{why}");
    let mut socket = lab.ask(&leave(&["a"], 30));
    lab.turns(20);
    assert!(answer(&mut socket).is_none());
    lab.use_in(0, false);
    assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    assert_eq!(lab.states(), ["absent", "ready"]);
    lab.want(&Ask::Join { guests: vec!["a".to_owned()] }).unwrap();
    lab.turns(50);
    assert_eq!(lab.states(), ["ready", "ready"]);
}

#[test]
fn a_guest_that_starts_again_has_it_again() {
    let mut lab = Lab::with_segment("segment-starts");
    let folder = lab.folder.clone();
    lab.machines[0].again(&folder, "a");
    lab.turns(2);
    assert_ne!(lab.states()[0], "ready");
    lab.turns(300);
    assert_eq!(lab.states(), ["ready", "ready"]);
}

#[test]
fn a_bell_rings_where_it_is_to_ring_and_no_oftener_than_it_may() {
    let mut lab = Lab::with_segment("segment-rings");
    let region = lab.host.segments[0].number;
    // In all that there can be, itself among them; in none; from who has no part; of another region.
    for (guest, bell, region, domains) in
        [(0, 3, region, u8::MAX), (0, 4, region, 1), (2, 5, region, 3), (0, 6, region + 1, 3)]
    {
        lab.machines[guest].say(ToHost::Ring { region, bell, domains });
    }
    lab.turns(10);
    let rung = |lab: &mut Lab, guest: usize| std::mem::take(&mut lab.machines[guest].segments.rung);
    assert_eq!([0, 1, 2].map(|guest| rung(&mut lab, guest)), [vec![], vec![(region, 3)], vec![]]);
    assert_eq!(lab.segment().guests.iter().map(|guest| guest.rings).collect::<Vec<_>>(), [0, 1]);
    // Who rings too often is not heard for a while, and others are.
    for _ in 0..40 {
        for _ in 0..100 {
            lab.machines[0].say(ToHost::Ring { region, bell: 7, domains: 2 });
        }
        lab.turns(2);
    }
    lab.machines[1].say(ToHost::Ring { region, bell: 8, domains: 1 });
    lab.turns(10);
    let (a, b) = (rung(&mut lab, 0), rung(&mut lab, 1));
    assert_eq!(a, [(region, 8)]);
    assert!((1900..4000).contains(&b.len()), "{}", b.len());
    // A broker that does not run is told nothing that it hears.
    lab.machines[1].is_up = false;
    lab.machines[0].say(ToHost::Ring { region, bell: 9, domains: 2 });
    lab.turns(10);
    assert!(rung(&mut lab, 1).iter().all(|&(_, bell)| bell != 9));
    // Nor is anything kept for one that does not read.
    let rings = |lab: &mut Lab| lab.segment().guests[1].rings;
    let before = rings(&mut lab);
    lab.host.guests[1].port.send(&vec![0; 2 << 20]);
    assert!(!lab.host.guests[1].port.is_flushed());
    lab.machines[0].say(ToHost::Ring { region, bell: 9, domains: 2 });
    lab.turns(10);
    assert_eq!(rings(&mut lab), before);
}

#[test]
fn who_lives_is_asked_where_he_lives() {
    let mut lab = Lab::with_segment("segment-lives");
    let region = lab.host.segments[0].number;
    lab.machines[0].segments.alive.insert(1);
    // Slots of guest 0 that lives and died, of no guest, and none.
    for (id, slot) in [(1, 1), (2, 9), (3, 8), (4, 0)] {
        lab.machines[1].say(ToHost::Probe { id, region, slot });
    }
    lab.turns(10);
    lab.machines[1].segments.lives.sort_unstable_by_key(|&(id, _)| id);
    let known = [(1, Life::Alive), (2, Life::Dead), (3, Life::Dead), (4, Life::Dead)];
    assert_eq!(lab.machines[1].segments.lives[..3], known[..3]);
    lab.machines[1].segments.lives.clear();
    // A broker that does not run is no death, a QEMU that ended is one.
    lab.machines[0].is_up = false;
    lab.machines[1].say(ToHost::Probe { id: 5, region, slot: 1 });
    lab.turns(10);
    assert!(lab.machines[1].segments.lives.is_empty());
    lab.machines[0].qmp = Socket::new(lab.folder.join("a.qmp"));
    std::fs::remove_file(lab.folder.join("a.qmp")).unwrap();
    lab.turns(10);
    lab.machines[1].say(ToHost::Probe { id: 6, region, slot: 1 });
    lab.turns(10);
    assert_eq!(lab.machines[1].segments.lives, [(6, Life::Dead)]);
    // Who has no part in the segment is not answered.
    lab.machines[2].say(ToHost::Probe { id: 7, region, slot: 1 });
    lab.turns(10);
    assert!(lab.machines[2].segments.lives.is_empty());
}

#[test]
fn what_is_wrong_is_said() {
    let mut lab = Lab::with_segment("segment-wrong");
    let writes = [right("c", None, "write")];
    for (ask, wanted) in [
        (create("table", 4096, &writes), "there is a segment 'table' already"),
        (create("../x", 4096, &writes), "'../x' is no name"),
        (create("x", 0, &writes), "cannot have 0 bytes"),
        (create("x", 2 << 30, &writes), "MiB are left of --memory-limit"),
        (create("x", 4096, &[right("z", None, "write")]), "no guest is named 'z'"),
        (create("x", 4096, &[right("c", None, "all")]), "'all' is none of none, read, write"),
        (Ask::Segment(SegmentAsk::Remove { name: "x".into(), force: true }), "there are: table"),
    ] {
        let why = lab.want(&ask).unwrap_err();
        assert!(why.contains(wanted), "{why}");
    }
    let users: Vec<_> = (0..80).map(|user| right("a", Some(user), "read")).collect();
    let why = lab.want(&allow(&users[..70])).unwrap_err();
    assert!(why.contains("64 users"), "{why}");
    assert_eq!(lab.segment().guests[0].rights.len(), 1);
    assert_eq!(lab.host.segments.len(), 1);
    let files = std::fs::read_dir(lab.folder.join("memory")).unwrap().flatten();
    let of_segments = files.filter(|file| file.file_name().to_string_lossy().contains("segment"));
    assert_eq!(of_segments.count(), 2);
    // More than a guest has ports: it says so.
    for name in ["x", "y"] {
        lab.want(&create(name, 4096, &[right("a", None, "write")])).unwrap();
    }
    lab.turns(50);
    let mut guests = lab.status().segments.into_iter().flat_map(|segment| segment.guests);
    let has_none = |guest: &SegmentGuest| {
        guest.trouble.as_ref().is_some_and(|why| why.contains("no empty port"))
    };
    assert!(guests.any(|guest| guest.state == "coming" && has_none(&guest)));
}
