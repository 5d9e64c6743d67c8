//! Text as compilers and people write it, and real programs as another disassembler reads them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use yasmin_text::{Concern, Found, Scratch, Text, Unwind, concern, decode, judge, next};

fn all(code: &[u8]) -> Vec<(usize, Found)> {
    let text = Text { code, address: 0, unwind: None };
    let (mut found, mut scratch) = (Vec::new(), Box::new(Scratch::new()));
    let mut at = 0;
    while let Some(here) = next(code, at) {
        found.push((here, judge(&text, here, &mut scratch)));
        at = here + 1;
    }
    found
}

fn one(code: &[u8]) -> Found {
    match all(code)[..] {
        [(_, found)] => found,
        ref found => panic!("{found:?}"),
    }
}

#[test]
fn a_number_is_known_where_all_ways_bring_it() {
    // mov $7, %eax; syscall
    assert_eq!(one(b"\xb8\x07\0\0\0\x0f\x05\xc3"), Found::Call(7, None));
    // mov $7, %rax; mov $3, %esi; syscall
    assert_eq!(one(b"\x48\xc7\xc0\x07\0\0\0\xbe\x03\0\0\0\x0f\x05"), Found::Call(7, Some(3)));
    // xor %eax, %eax; mov %rdx, %rdi; syscall
    assert_eq!(one(b"\x31\xc0\x48\x89\xd7\x0f\x05"), Found::Call(0, None));
    // push $60; pop %rax; syscall
    assert_eq!(one(b"\x6a\x3c\x58\x0f\x05"), Found::Call(60, None));
    // mov $202, %ebp; call; mov %ebp, %eax; syscall: ebp outlives calls
    let kept = b"\xbd\xca\0\0\0\xe8\0\0\0\0\x89\xe8\x0f\x05";
    assert_eq!(one(kept), Found::Call(202, None));
}

#[test]
fn a_number_is_not_known_where_one_way_does_not_bring_it() {
    // mov %edi, %eax; syscall
    assert_eq!(one(b"\x89\xf8\x0f\x05"), Found::AnyCall);
    // mov $7, %eax; call; syscall
    assert_eq!(one(b"\xb8\x07\0\0\0\xe8\0\0\0\0\x0f\x05"), Found::AnyCall);
    // mov $7, %eax; mov (%rdi), %al; syscall
    assert_eq!(one(b"\xb8\x07\0\0\0\x8a\x07\x0f\x05"), Found::AnyCall);
    // mov $7, %eax; mov %bl, %ah; syscall
    assert_eq!(one(b"\xb8\x07\0\0\0\x88\xdc\x0f\x05"), Found::AnyCall);
    // je 1f; mov $7, %eax; 1: syscall
    assert_eq!(one(b"\x74\x05\xb8\x07\0\0\0\x0f\x05"), Found::AnyCall);
    // mov $7, %eax; 1: syscall; jmp 1b
    assert_eq!(one(b"\xb8\x07\0\0\0\x0f\x05\xeb\xfc"), Found::AnyCall);
    // mov $7, %eax; syscall, and a long jump to it from far behind
    let mut far = b"\xb8\x07\0\0\0\x0f\x05\xc3".to_vec();
    far.resize(1000, 0x90);
    far.extend_from_slice(b"\xe9");
    far.extend_from_slice(&(5 - 1005_i32).to_le_bytes());
    far.push(0x90);
    assert_eq!(one(&far), Found::AnyCall);
    // int $0x80 has other numbers.
    assert_eq!(one(b"\xb8\x07\0\0\0\xcd\x80"), Found::AnyCall);
}

/// As in liburing's `io_uring_ring_dontfork`: `and $0x400, %eax` touches no other register.
#[test]
fn a_number_outlives_arithmetic_on_rax() {
    for opcode in [0x05, 0x0d, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0xa9] {
        let code =
            [b"\x41\xb9\x1c\0\0\0", &[opcode][..], b"\0\x04\0\0\x44\x89\xc8\x0f\x05\xc3"].concat();
        assert_eq!(one(&code), Found::Call(28, None), "{opcode:#x}");
        // mov $28, %eax; and the like: not known any more, but for cmp and test
        let own = [b"\xb8\x1c\0\0\0", &[opcode][..], b"\0\x04\0\0\x0f\x05\xc3"].concat();
        let keeps = matches!(opcode, 0x3d | 0xa9);
        assert_eq!(one(&own) == Found::Call(28, None), keeps, "{opcode:#x}");
    }
}

#[test]
fn a_loop_brings_the_number_again() {
    // mov $202, %ebp; 1: mov %ebp, %eax; syscall; jne 1b
    let again = b"\xbd\xca\0\0\0\x89\xe8\x0f\x05\x75\xfa\xc3";
    assert_eq!(one(again), Found::Call(202, None));
    // ret between, and what follows reached by the jump over it
    let over = b"\x41\xb8\xca\0\0\0\x74\x02\xc3\x90\x44\x89\xc0\x0f\x05\xc3";
    assert_eq!(one(over), Found::Call(202, None));
}

#[test]
fn a_number_comes_by_any_way_and_from_any_load() {
    // je 1f; mov $7, %eax; jmp 2f; 1: mov $7, %eax; 2: syscall
    let either = b"\x74\x07\xb8\x07\0\0\0\xeb\x05\xb8\x07\0\0\0\x0f\x05\xc3";
    assert_eq!(one(either), Found::Call(7, None));
    // The same, with another number on one way.
    let other = b"\x74\x07\xb8\x07\0\0\0\xeb\x05\xb8\x08\0\0\0\x0f\x05\xc3";
    assert_eq!(one(other), Found::AnyCall);
    // mov $202, %ebp; jmp 2f; 1: mov %ebp, %eax; syscall; 2: jne 1b
    let later = b"\xbd\xca\0\0\0\xeb\x04\x89\xe8\x0f\x05\x75\xfa\xc3";
    assert_eq!(one(later), Found::Call(202, None));
    // The same with a loop that changes it: 2: dec %ebp; jne 1b
    let changed = b"\xbd\xca\0\0\0\xeb\x04\x89\xe8\x0f\x05\xff\xcd\x75\xf8\xc3";
    assert_eq!(one(changed), Found::AnyCall);
    // mov $7, %eax; ret; syscall: nobody is seen to come here
    assert_eq!(one(b"\xb8\x07\0\0\0\xc3\x0f\x05"), Found::AnyCall);
    // je over the prefix; lock; cmpxchg %edx, (%rdi): both are instructions
    let prefix = b"\xbb\x07\0\0\0\x74\x01\xf0\x0f\xb1\x17\x89\xd8\x0f\x05";
    assert_eq!(one(prefix), Found::AnyCall);
}

#[test]
fn the_bytes_inside_another_instruction_are_none() {
    // je +0x50f; mov $0x050f, %eax; movl $0x50f, 0x50f(%rip); lea 0x50f(%rax), %rbx
    for code in [
        &b"\x0f\x84\x0f\x05\0\0\xc3"[..],
        b"\xb8\x0f\x05\0\0\xc3",
        b"\xc7\x05\x0f\x05\0\0\x0f\x05\0\0\xc3",
        b"\x48\x8d\x98\x0f\x05\0\0\xc3",
    ] {
        assert!(all(code).iter().all(|(_, found)| *found == Found::Nothing), "{code:x?}");
    }
}

#[test]
fn what_touches_no_socket_is_harmless() {
    // futex, getpid, close, openat; tcgets; F_GETFL
    for number in [202, 39, 3, 257] {
        assert_eq!(concern(number, None), Concern::Harmless, "{number}");
    }
    assert_eq!(concern(16, Some(0x5401)), Concern::Harmless);
    assert_eq!(concern(72, Some(3)), Concern::Harmless);
    // read, poll, epoll_wait, io_submit; any ioctl; FIONBIO; F_DUPFD; a call of the future
    for (number, second) in [(0, None), (7, None), (232, None), (209, None), (16, None)] {
        assert_eq!(concern(number, second), Concern::Sockets, "{number}");
    }
    for (number, second) in [(16, Some(0x5421)), (72, Some(0)), (72, Some(4)), (100_000, None)] {
        assert_eq!(concern(number, second), Concern::Sockets, "{number}");
    }
    assert_eq!(concern(425, None), Concern::Uring);
}

/// An ELF file's segments: what the dynamic linker would map.
struct Elf(Vec<u8>);

impl Elf {
    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let is_ours = bytes.get(..6)? == b"\x7fELF\x02\x01" && bytes.get(18)? == &62;
        is_ours.then_some(Self(bytes))
    }

    fn number(&self, at: usize, len: usize) -> usize {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&self.0[at..at + len]);
        u64::from_le_bytes(bytes) as usize
    }

    /// Kind, flags, address and bytes of each segment.
    fn segments(&self) -> Vec<(usize, usize, usize, &[u8])> {
        let (table, size, count) = (self.number(32, 8), self.number(54, 2), self.number(56, 2));
        let segment = |i| {
            let at = table + i * size;
            let (offset, len) = (self.number(at + 8, 8), self.number(at + 32, 8));
            let bytes = self.0.get(offset..offset + len).unwrap_or_default();
            (self.number(at, 4), self.number(at + 4, 4), self.number(at + 16, 8), bytes)
        };
        (0..count).map(segment).collect()
    }

    /// Addresses of instructions that enter the kernel.
    fn calls(&self) -> BTreeSet<usize> {
        self.found().into_iter().map(|(address, _)| address).collect()
    }

    fn found(&self) -> Vec<(usize, Found)> {
        let segments = self.segments();
        let table = segments.iter().find(|segment| segment.0 == 0x6474_e550);
        let unwind = table.and_then(|table| {
            let holds = |segment: &&(usize, usize, usize, &[u8])| {
                segment.0 == 1 && segment.2 <= table.2 && table.2 < segment.2 + segment.3.len()
            };
            let around = segments.iter().find(holds)?;
            Unwind::new(around.3, around.2 as u64, table.2 as u64)
        });
        let (mut calls, mut scratch) = (Vec::new(), Box::new(Scratch::new()));
        for &(kind, flags, address, code) in &segments {
            let text = Text { code, address: address as u64, unwind };
            let mut at = 0;
            while let Some(here) = next(code, at).filter(|_| kind == 1 && flags & 1 != 0) {
                let found = judge(&text, here, &mut scratch);
                if found != Found::Nothing {
                    calls.push((address + here, found));
                }
                at = here + 1;
            }
        }
        calls
    }
}

/// As objdump sees it; `None` without objdump.
fn calls_by_objdump(path: &Path) -> Option<BTreeSet<usize>> {
    let out = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let calls =
        text.lines().filter(|line| line.ends_with("syscall") || line.contains("int    $0x80"));
    let address = |line: &str| usize::from_str_radix(line.split(':').next()?.trim(), 16).ok();
    Some(calls.filter_map(address).collect())
}

/// Objects full of calls, with tables among their text, and without any.
const OBJECTS: [&str; 5] =
    ["libc.so.6", "ld-linux-x86-64.so.2", "libcrypto.so.3", "libm.so.6", "libstdc++.so.6"];

#[test]
fn real_objects_as_objdump_reads_them() {
    for name in OBJECTS {
        let path = PathBuf::from("/usr/lib/x86_64-linux-gnu").join(name);
        let Some(elf) = Elf::read(&path) else { continue };
        let Some(mut expected) = calls_by_objdump(&path) else { continue };
        if name == "libcrypto.so.3" {
            // What objdump reads there are tables.
            expected.clear();
        }
        assert_eq!(elf.calls(), expected, "{name}");
    }
}

/// OpenMP's runtime makes futex calls alone, with numbers that lie in registers over loops.
#[test]
fn the_runtime_of_openmp_touches_no_socket() {
    let Some(elf) = Elf::read(Path::new("/usr/lib/x86_64-linux-gnu/libgomp.so.1")) else { return };
    let is_futex = |found: &Found| matches!(found, Found::Call(202, _));
    assert!(elf.found().iter().all(|(_, found)| is_futex(found)), "{:x?}", elf.found());
}

/// The lengths of all instructions of this test's own text.
#[test]
fn lengths_as_objdump_has_them() {
    let path = std::env::current_exe().expect("this program");
    let out = Command::new("objdump")
        .args(["-d", "-w", "-j", ".text", "--insn-width=16"])
        .arg(&path)
        .output();
    let Ok(out) = out else { return };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut count = 0;
    for line in text.lines() {
        let mut columns = line.split('\t').skip(1);
        let (Some(bytes), Some(words)) = (columns.next(), columns.next()) else { continue };
        let bytes: Vec<u8> =
            bytes.split_whitespace().filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        if bytes.is_empty() || words.contains("(bad)") || words.starts_with('.') {
            continue;
        }
        let len = decode(&bytes).map(|one| one.len_bytes);
        assert_eq!(len, Some(bytes.len()), "{line}");
        count += 1;
    }
    assert!(count > 1000 || text.is_empty(), "{count} instructions");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(code in prop::collection::vec(any::<u8>(), 0..600)) {
        for (at, _) in all(&code) {
            prop_assert!(at + 2 <= code.len());
        }
        if let Some(one) = decode(&code) {
            prop_assert!((1..=15).contains(&one.len_bytes) && one.len_bytes <= code.len());
        }
    }

    #[test]
    fn any_table_is_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        count in any::<u32>(),
        address in any::<u64>(),
        asked in any::<u64>(),
    ) {
        let mut table = vec![1, 0x1b, 3, 0x3b, 0, 0, 0, 0];
        table.extend_from_slice(&count.to_le_bytes());
        table.extend_from_slice(&bytes);
        let code = [&bytes[..], b"\x0f\x05"].concat();
        if let Some(unwind) = Unwind::new(&table, address, address) {
            for asked in [asked, address, address.wrapping_add(20)] {
                if let Some((start, end)) = unwind.function(asked) {
                    prop_assert!(start <= asked && asked < end);
                }
                let text = Text { code: &code, address: asked, unwind: Some(unwind) };
                judge(&text, bytes.len(), &mut Scratch::new());
            }
        }
    }
}

mod go {
    use yasmin_text::go::{Kind, Site, all, is_known, makes_threads, next};

    /// The bytes of Go 1.26's functions, and the instruction's place.
    const SYSCALL6: (&[u8], usize) = (
        b"\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf\x0f\x05\x48\x3d\x01\xf0\xff\xff\x76\x15",
        12,
    );
    const RAW_VFORK: (&[u8], usize) =
        (b"\x48\x8b\x44\x24\x08\x41\x5c\x0f\x05\x41\x54\x48\x3d\x01\xf0\xff\xff\x76\x12", 7);
    const WRITE1: (&[u8], usize) = (
        b"\x48\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x8b\x54\x24\x18\xb8\x01\0\0\0\x0f\x05\x89\x44\x24\x20\xc3",
        19,
    );
    const CLONE: (&[u8], usize) = (b"\xb8\x38\0\0\0\x0f\x05\x48\x83\xf8\x00\x74\x05", 5);

    const SIGACTION: (&[u8], usize) =
        (b"\x48\x8b\x54\x24\x18\x4c\x8b\x54\x24\x20\xb8\x0d\0\0\0\x0f\x05\x89\x44\x24\x28\xc3", 15);

    #[test]
    fn functions_are_found_where_they_stand() {
        let mut code = Vec::new();
        let mut wanted = Vec::new();
        for ((bytes, at), kind, lead_bytes, len_bytes) in [
            (WRITE1, Kind::Call, 0, 6),
            (CLONE, Kind::Thread, 5, 2),
            (SIGACTION, Kind::Call, 5, 2),
            (RAW_VFORK, Kind::Call, 0, 10),
            (SYSCALL6, Kind::Call, 0, 8),
        ] {
            assert_eq!(makes_threads(bytes), bytes == CLONE.0);
            assert_eq!(is_known(bytes), bytes == SYSCALL6.0);
            code.resize(code.len() + 100, 0xcc);
            let site = yasmin_text::sites::Site { at: code.len() + at, lead_bytes, len_bytes };
            wanted.push(Site { kind, site });
            code.extend_from_slice(bytes);
        }
        assert_eq!(all(&code).collect::<Vec<_>>(), wanted);
        assert!(is_known(&code));
    }

    #[test]
    fn any_other_byte_makes_it_another_function() {
        for (bytes, at) in [SYSCALL6, RAW_VFORK, WRITE1] {
            let len_bytes = next(bytes, 0).unwrap().site.len_bytes;
            // The last byte that is moved may be a distance.
            for changed in 0..at + len_bytes - 1 {
                let mut other = bytes.to_vec();
                other[changed] ^= 0x11;
                assert_eq!(next(&other, 0), None, "byte {changed} of {bytes:x?}");
            }
            // Nor is half a function one.
            for end in 0..at + len_bytes {
                assert_eq!(next(&bytes[..end], 0), None);
            }
        }
    }
}

mod sites {
    use proptest::prelude::*;
    use yasmin_text::Text;
    use yasmin_text::sites::{ROOM, Refusal, Site, all};

    /// What `all` finds in these bytes, which stand between others.
    fn found(bytes: &[u8]) -> Result<Vec<Site>, Refusal> {
        let mut code = vec![0x90; BEFORE];
        code.extend_from_slice(bytes);
        code.resize(code.len() + BEFORE, 0x90);
        let text = Text { code: &code, address: 0x40_1000, unwind: None };
        let mut sites = [Site::NONE; 4];
        let count = all(&text, &mut vec![0; ROOM], &mut sites)?;
        Ok(sites[..count].to_vec())
    }

    const BEFORE: usize = 512;

    fn one(at: usize, lead_bytes: usize, len_bytes: usize) -> Result<Vec<Site>, Refusal> {
        Ok(vec![Site { at: BEFORE + at, lead_bytes, len_bytes }])
    }

    #[test]
    fn room_is_before_the_instruction_or_behind_it() {
        // mov eax, 41; syscall
        assert_eq!(found(b"\xb8\x29\0\0\0\x0f\x05"), one(5, 5, 2));
        // mov rdi, rsi; mov rax, rdx; syscall; mov rdi, rax: any number.
        assert_eq!(found(b"\x48\x89\xf7\x48\x89\xd0\x0f\x05\x48\x89\xc7"), one(6, 3, 2));
        // lea rsi, [rip + 8]; syscall; mov rdi, rax: what asks where it stands stays.
        assert_eq!(found(b"\x48\x8d\x35\x08\0\0\0\x0f\x05\x48\x89\xc7"), one(7, 0, 5));
        // call; syscall; ret, and what is between functions.
        assert_eq!(found(b"\xe8\0\0\0\0\x0f\x05\xc3\x90\x90"), one(5, 0, 5));
        // getpid concerns nobody.
        assert_eq!(found(b"\xb8\x27\0\0\0\x0f\x05"), Ok(vec![]));
    }

    #[test]
    fn nothing_jumps_into_what_is_overwritten() {
        // mov eax, 41; syscall; dec rcx; jnz to the instruction
        let again = b"\xb8\x29\0\0\0\x0f\x05\x48\xff\xc9\x75\xf9";
        assert_eq!(found(again), one(5, 0, 5), "behind it there is room");
        // mov eax, 41; syscall; jmp to the instruction: there is none.
        assert_eq!(found(b"\xb8\x29\0\0\0\x0f\x05\xeb\xfc"), Err(Refusal::NoRoom));
    }

    #[test]
    fn nothing_jumps_into_it_from_afar() {
        const AFAR: usize = 3 << 20;
        // mov eax, 41; syscall; mov rdi, rax, and far behind it a jump to the instruction.
        let mut code = b"\xb8\x29\0\0\0\x0f\x05\x48\x89\xc7".to_vec();
        assert_eq!(found(&code), one(5, 5, 2));
        code.resize(AFAR, 0x90);
        code.push(0xe9);
        code.extend_from_slice(&(5 - (AFAR as i32 + 5)).to_le_bytes());
        assert_eq!(found(&code), one(5, 0, 5));
    }

    /// By chance the end of one instruction and the beginning of the next one say jmp.
    #[test]
    fn what_only_looks_like_a_jump_leads_nowhere() {
        const AFAR: usize = 3 << 20;
        const BEFORE: usize = 500;
        // mov eax, 41; syscall; jmp away, so that there is room before it alone
        let text = |jump: &[u8]| {
            let mut code = b"\x90\x90\xb8\x29\0\0\0\x0f\x05\xeb\xfe".to_vec();
            code.resize(AFAR - BEFORE, 0x90);
            // mov eax, [rsp + 28]
            code.extend_from_slice(&b"\x8b\x44\x24\x1c".repeat(BEFORE / 4));
            code.extend_from_slice(jump);
            let next = code.len() as i32 + 4;
            code.extend_from_slice(&(7 - next).to_le_bytes());
            code
        };
        // jmp rel32, and mov ecx, r13d (44 89 e9) behind which the same four bytes come
        assert_eq!(found(&text(b"\xe9")), Err(Refusal::NoRoom));
        assert_eq!(found(&text(b"\x44\x89\xe9")), one(7, 5, 2));
    }

    #[test]
    fn two_do_not_overlap() {
        // mov eax, 41; syscall; mov eax, 3; syscall
        let sites = found(b"\xb8\x29\0\0\0\x0f\x05\xb8\x03\0\0\0\x0f\x05").unwrap();
        assert_eq!(sites.len(), 2);
        assert!(sites[0].end() <= sites[1].at - sites[1].lead_bytes);
    }

    #[test]
    fn what_is_refused() {
        // musl's __syscall_cp_asm.
        assert_eq!(found(b"\x4c\x89\x5c\x24\x08\x0f\x05\xc3"), Err(Refusal::Cancels));
        // int 0x80 has other numbers.
        assert_eq!(found(b"\xb8\x29\0\0\0\xcd\x80"), Err(Refusal::Unclear));
        let many = b"\xb8\x29\0\0\0\x0f\x05".repeat(5);
        assert_eq!(found(&many), Err(Refusal::TooMany));
    }

    /// As Chromium's `SyscallAsm`, which gives its sandbox the address that it is called from.
    #[test]
    fn an_instruction_whose_address_is_asked_for() {
        // lea rax, [rip + what is behind]; mov r9, [rsi + 40]; mov rsi, [rsi + 8]; syscall; ret
        let named = |to: u8| {
            let lea = [0x48, 0x8d, 0x05, to, 0, 0, 0];
            [&lea, &b"\x4c\x8b\x4e\x28\x48\x8b\x76\x08\x0f\x05\xc3"[..]].concat()
        };
        for to in [8, 10] {
            assert_eq!(found(&named(to)), Err(Refusal::IsNamed), "{to}");
        }
        for to in [0, 11, 100] {
            assert!(found(&named(to)).is_ok(), "{to}");
        }
    }

    #[test]
    fn what_is_found_fits() {
        // mov eax, 41; syscall; mov eax, 3; syscall; ret
        let code = b"\xb8\x29\0\0\0\x0f\x05\xb8\x03\0\0\0\x0f\x05\xc3";
        let mut sites = found(code).unwrap();
        // Other code stands before it there.
        let before = sites[0].at - 5;
        sites.iter_mut().for_each(|site| site.at -= before);
        assert!(sites[0].fits(code, 0) && sites[1].fits(code, sites[0].end()));
        assert!(!sites[1].fits(code, sites[1].at), "it begins where the one before has not ended");
        assert!(!sites[1].fits(&code[..13], 0), "it ends behind the code");
        for other in [
            Site { at: 4, ..sites[0] },
            Site { lead_bytes: 3, ..sites[0] },
            Site { lead_bytes: 6, ..sites[0] },
            Site { lead_bytes: 0, ..sites[0] },
            Site { len_bytes: 1, ..sites[0] },
            Site { len_bytes: 4, ..sites[0] },
            Site { at: usize::MAX, ..sites[0] },
            Site { len_bytes: usize::MAX, ..sites[0] },
        ] {
            assert!(!other.fits(code, 0), "{other:?}");
        }
        // What asks where it stands cannot move: lea rax, [rip]; syscall
        let asks = Site { at: 7, lead_bytes: 7, len_bytes: 2 };
        assert!(!asks.fits(b"\x48\x8d\x05\0\0\0\0\x0f\x05", 0));
    }

    proptest! {
        #[test]
        fn any_place_is_judged(
            code in prop::collection::vec(any::<u8>(), 0..64),
            at in 0..80_usize,
            lead_bytes in 0..80_usize,
            len_bytes in 0..80_usize,
            free_from in 0..80_usize,
        ) {
            let site = Site { at, lead_bytes, len_bytes };
            if site.fits(&code, free_from) {
                prop_assert!(at - lead_bytes >= free_from && site.end() <= code.len());
                prop_assert_eq!(&code[at..at + 2], b"\x0f\x05");
            }
        }
    }

    #[test]
    fn padding_is_whole_instructions() {
        let is_padding = yasmin_text::is_all_padding;
        // As behind glibc's _dl_debug_state.
        assert!(is_padding(b"\x66\x66\x2e\x0f\x1f\x84\0\0\0\0\0\x0f\x1f\x40\0"));
        assert!(is_padding(b"\xcc\xcc\x90") && is_padding(b""));
        assert!(!is_padding(b"\x0f\x1f\x40"), "a part of one");
        assert!(!is_padding(b"\x90\xc3"), "an instruction");
    }
}
