//! Finds the network namespaces and asks each what is in it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rustix::io::Errno;

use super::inventory::{Interface, Kind, Namespace};
use super::rtnl::{Buffer, Rtnl};
use crate::function::Process;
use crate::process;

/// Namespaces with names; it changes when one comes or goes.
pub const NAMED: &str = "/run/netns";

/// How the host's own namespace is reached.
const OWN: &str = "/proc/self/ns/net";

/// A namespace and the socket in it.
pub struct Open {
    pub namespace: Namespace,
    pub rtnl: Rtnl,
}

/// By inode, without what is in them.
pub type Found = BTreeMap<u64, Namespace>;

/// What is in the namespaces, with the sockets of `before` used again where theirs are still
/// there.
pub fn survey(found: &Found, before: Vec<Open>, buffer: &mut Buffer) -> io::Result<Vec<Open>> {
    let mut sockets: HashMap<u64, Rtnl> =
        before.into_iter().map(|open| (open.namespace.inode, open.rtnl)).collect();
    let mut opened = Vec::new();
    let mut links = Vec::new();
    for (inode, namespace) in found {
        let rtnl = match sockets.remove(inode) {
            Some(rtnl) => Ok(rtnl),
            None => File::open(&namespace.path).and_then(|file| Rtnl::open(&file)),
        };
        let mut rtnl = match rtnl {
            Ok(rtnl) => rtnl,
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                return Err(error);
            }
            // It may have gone since it was found; without permission only ours remains.
            Err(_) => continue,
        };
        // What was heard until now is seen now.
        rtnl.stirred(buffer);
        let mut namespace = namespace.clone();
        let Ok(messages) = look(&mut rtnl, &mut namespace, buffer) else { continue };
        links.push(messages);
        opened.push(Open { namespace, rtnl });
    }
    find_peers(&mut opened, &links, buffer);
    find_tap_owners(&mut opened);
    Ok(opened)
}

/// Which namespaces there are, and the processes in them; a name wins over a process as the way
/// in. `names`: those in [`NAMED`].
pub fn find(names: &[String]) -> io::Result<Found> {
    let mut found = Found::new();
    let own = fs::metadata(OWN)?;
    found.insert(
        own.ino(),
        Namespace { inode: own.ino(), path: OWN.into(), is_host: true, ..Namespace::default() },
    );
    for name in names {
        let path = format!("{NAMED}/{name}");
        // A leftover whose namespace is gone is an ordinary empty file.
        let Ok(data) = fs::metadata(&path) else { continue };
        if data.dev() == own.dev() {
            let entry = found.entry(data.ino()).or_default();
            entry.inode = data.ino();
            if !entry.is_host {
                (entry.name, entry.path) = (Some(name.clone()), path);
            }
        }
    }
    for pid in process::all()? {
        let path = format!("/proc/{pid}/ns/net");
        let Ok(data) = fs::metadata(&path) else { continue };
        if data.ino() == own.ino() {
            continue;
        }
        let Ok(stat) = process::stat(pid) else { continue };
        let entry = found.entry(data.ino()).or_default();
        entry.inode = data.ino();
        if entry.path.is_empty() {
            entry.path = path;
        }
        entry.program.get_or_insert(stat.name);
        entry.processes.push(Process { pid, started: stat.started });
    }
    Ok(found)
}

/// Fills in the interfaces, with addresses and routes.
fn look(
    rtnl: &mut Rtnl,
    namespace: &mut Namespace,
    buffer: &mut Buffer,
) -> io::Result<Vec<LinkMessage>> {
    let mut question = LinkMessage::default();
    question.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let mut links = Vec::new();
    rtnl.dump(RouteNetlinkMessage::GetLink(question), buffer, |answer| {
        if let RouteNetlinkMessage::NewLink(link) = answer {
            links.push(link);
        }
    })?;
    namespace.interfaces = links.iter().map(interface).collect();
    let interfaces = &mut namespace.interfaces;
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    rtnl.dump(question, buffer, |answer| {
        let RouteNetlinkMessage::NewAddress(address) = answer else { return };
        let index = address.header.index;
        let owner = interfaces.iter_mut().find(|interface| interface.index == index);
        let Some(owner) = owner else { return };
        // LOCAL is the interface's own; ADDRESS may be the far end of a point-to-point link.
        let mut own = None;
        for attribute in &address.attributes {
            match attribute {
                AddressAttribute::Local(ip) => own = Some(*ip),
                AddressAttribute::Address(ip) => own = own.or(Some(*ip)),
                _ => {}
            }
        }
        // Every interface that is up has one of these, a bridge's too.
        let is_link_local =
            |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        owner.addresses.extend(own.filter(|ip| !is_link_local(ip)));
    })?;
    rtnl.dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()), buffer, |answer| {
        if let RouteNetlinkMessage::NewRoute(route) = answer
            && route.header.kind == RouteType::Unicast
        {
            note_route(interfaces, &route);
        }
    })?;
    Ok(links)
}

fn interface(link: &LinkMessage) -> Interface {
    let mut made = Interface { index: link.header.index, ..Interface::default() };
    let mut has_device = false;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => made.name.clone_from(name),
            LinkAttribute::Controller(index) if *index != 0 => made.bridge = Some(*index),
            LinkAttribute::ParentDevName(_) => has_device = true,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(InfoKind::Veth) => made.kind = Kind::Veth,
                        LinkInfo::Kind(InfoKind::Bridge) => made.kind = Kind::Bridge,
                        LinkInfo::Kind(InfoKind::Tun) => made.kind = Kind::Tap,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if link.header.link_layer_type == LinkLayerType::Loopback {
        made.kind = Kind::Loopback;
    } else if has_device && made.kind == Kind::Other {
        made.kind = Kind::Card;
    }
    made
}

fn note_route(interfaces: &mut [Interface], route: &RouteMessage) {
    let is_default = route.header.destination_prefix_length == 0;
    let mut hops: Vec<(Option<u32>, Option<IpAddr>)> = vec![hop(&route.attributes)];
    for attribute in &route.attributes {
        if let RouteAttribute::MultiPath(next) = attribute {
            hops.extend(
                next.iter().map(|next| (Some(next.interface_index), hop(&next.attributes).1)),
            );
        }
    }
    for (index, gateway) in hops {
        let Some(index) = index else { continue };
        let found = interfaces.iter_mut().find(|interface| interface.index == index);
        let Some(interface) = found else { continue };
        interface.has_default_route |= is_default;
        let Some(gateway) = gateway else { continue };
        let at = if is_default { 0 } else { interface.next_hops.len() };
        if !interface.next_hops.contains(&gateway) {
            interface.next_hops.insert(at, gateway);
        }
    }
}

fn hop(attributes: &[RouteAttribute]) -> (Option<u32>, Option<IpAddr>) {
    let (mut index, mut gateway) = (None, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => gateway = Some((*ip).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => gateway = Some((*ip).into()),
            _ => {}
        }
    }
    (index, gateway)
}

/// A link says its peer's index and the peer's namespace by a number that is valid only here. So
/// the kernel is asked, through that number, for the peer's hardware address, and index and
/// address are looked for in all namespaces.
fn find_peers(opened: &mut [Open], links: &[Vec<LinkMessage>], buffer: &mut Buffer) {
    let mut places: HashMap<(u32, Vec<u8>), Vec<u64>> = HashMap::new();
    for (open, messages) in opened.iter().zip(links) {
        for message in messages {
            if let Some(address) = hardware_address(message) {
                let key = (message.header.index, address);
                places.entry(key).or_default().push(open.namespace.inode);
            }
        }
    }
    for (open, messages) in opened.iter_mut().zip(links) {
        for (message, interface) in messages.iter().zip(&mut open.namespace.interfaces) {
            if interface.kind != Kind::Veth {
                continue;
            }
            let (mut peer, mut there) = (None, None);
            for attribute in &message.attributes {
                match attribute {
                    LinkAttribute::Link(index) => peer = Some(*index),
                    LinkAttribute::LinkNetNsId(id) if *id >= 0 => there = Some(*id),
                    _ => {}
                }
            }
            let Some(peer) = peer else { continue };
            let Some(there) = there else {
                interface.peer = Some((open.namespace.inode, peer));
                continue;
            };
            let mut question = LinkMessage::default();
            question.header.index = peer;
            question.attributes.push(LinkAttribute::IfNetnsId(there));
            let answer = open.rtnl.get(RouteNetlinkMessage::GetLink(question), buffer);
            let address = match answer {
                Ok(RouteNetlinkMessage::NewLink(link)) => hardware_address(&link),
                _ => None,
            };
            let Some(address) = address else { continue };
            // Two namespaces with the same index and address: better no edge than a wrong one.
            if let Some([inode]) = places.get(&(peer, address)).map(Vec::as_slice) {
                interface.peer = Some((*inode, peer));
            }
        }
    }
}

fn hardware_address(link: &LinkMessage) -> Option<Vec<u8>> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => Some(address.clone()),
        _ => None,
    })
}

/// Who holds a tap says so in /proc/PID/fdinfo. Looked at only where there are taps, and only
/// for descriptors of the tap device.
fn find_tap_owners(opened: &mut [Open]) {
    let is_tap = |interface: &Interface| interface.kind == Kind::Tap;
    if !opened.iter().any(|open| open.namespace.interfaces.iter().any(is_tap)) {
        return;
    }
    let mut owners: HashMap<String, (Process, String)> = HashMap::new();
    for pid in process::all().unwrap_or_default() {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let is_tun = fs::read_link(descriptor.path())
                .is_ok_and(|target| target == Path::new("/dev/net/tun"));
            if !is_tun {
                continue;
            }
            let number = descriptor.file_name();
            let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(number);
            let text = fs::read_to_string(info).unwrap_or_default();
            let name = text.lines().find_map(|line| line.strip_prefix("iff:")).map(str::trim);
            if let (Some(name), Ok(stat)) = (name, process::stat(pid)) {
                let holder = Process { pid, started: stat.started };
                owners.insert(name.to_owned(), (holder, stat.name));
            }
        }
    }
    for open in opened {
        for interface in open.namespace.interfaces.iter_mut().filter(|one| is_tap(one)) {
            if let Some((process, program)) = owners.get(&interface.name) {
                interface.owner = Some(*process);
                interface.owner_program = Some(program.clone());
            }
        }
    }
}
