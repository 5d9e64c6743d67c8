//! The length of one x86-64 instruction, and what it does to the registers.
//!
//! As the AMD64 and Intel manuals' opcode maps have it. What a processor refuses in 64-bit mode
//! is no instruction; what only the kernel may use is one, but no sign of a program's text.

/// Opcode maps: legacy one-byte, 0F, 0F 38, 0F 3A, and what only VEX, EVEX and XOP reach.
const ONE_BYTE: u8 = 0;
const TWO_BYTE: u8 = 1;
const MAP_38: u8 = 2;
const MAP_3A: u8 = 3;

/// Registers by their numbers: bit 0 is rax, bit 15 is r15.
const RAX: u16 = 1;
const RCX: u16 = 1 << 1;
const RDX: u16 = 1 << 2;
const RSI: u16 = 1 << 6;
const RDI: u16 = 1 << 7;
const R11: u16 = 1 << 11;
/// What a function may change, by the calling convention.
const VOLATILE: u16 = RAX | RCX | RDX | RSI | RDI | 0xf00;
const ALL: u16 = u16::MAX;

/// What an instruction does to the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes at most these.
    Writes(u16),
    /// Puts a number into a register.
    Loads {
        to: u8,
        number: u32,
    },
    Copies {
        from: u8,
        to: u8,
    },
}

/// One instruction, decoded as far as this crate needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub len_bytes: usize,
    effect: Effect,
    /// Where a direct jump goes, counted from this instruction's first byte.
    pub jump: Option<i64>,
    /// Where memory is that is counted from it, from this instruction's first byte.
    pub(crate) points: Option<i64>,
    /// The next instruction is not reached from this one.
    pub ends: bool,
    /// No program's: only the kernel may use it, or nobody ever does.
    pub is_odd: bool,
    /// What it does depends on where it stands: jumps, calls, and memory counted from the instruction.
    pub is_bound: bool,
    /// What a push of an immediate leaves for the pop behind it.
    pushed: Option<u32>,
    /// The register that a pop writes.
    popped: Option<u8>,
}

impl Instruction {
    /// What `self` does, which stands behind `before`.
    pub fn effect(&self, before: Option<&Self>) -> Effect {
        match (before.and_then(|before| before.pushed), self.popped) {
            (Some(number), Some(to)) => Effect::Loads { to, number },
            _ => self.effect,
        }
    }
}

#[derive(Default)]
struct Prefixes {
    operand_16: bool,
    address_32: bool,
    repeat: bool,
    rex: u8,
    /// VEX, EVEX or XOP.
    is_vector: bool,
}

#[derive(Clone, Copy, Default)]
struct ModRm {
    byte: u8,
    /// With REX.B and REX.R.
    rm: u8,
    reg: u8,
    /// How far memory is from the next instruction, where it is counted from that.
    relative: Option<i64>,
}

impl ModRm {
    fn is_register(self) -> bool {
        self.byte >> 6 == 3
    }

    /// The opcode's extension.
    fn digit(self) -> u8 {
        self.byte >> 3 & 7
    }
}

struct Cursor<'a> {
    code: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// A little-endian number of `len` bytes, with its sign.
    fn number(&mut self, len: usize) -> Option<i64> {
        let bytes = self.code.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        let mut value = 0u64;
        for (i, byte) in bytes.iter().enumerate() {
            value |= u64::from(*byte) << (8 * i);
        }
        let unused_bits = 64 - 8 * len as u32;
        Some(if len == 0 { 0 } else { (value << unused_bits) as i64 >> unused_bits })
    }
}

/// Decodes the instruction at the beginning of `code`; `None` where there is none, or where it
/// goes on behind the end of `code`.
pub fn decode(code: &[u8]) -> Option<Instruction> {
    // No instruction is longer than 15 bytes.
    let mut cursor = Cursor { code: code.get(..15).unwrap_or(code), at: 0 };
    let mut prefixes = Prefixes::default();
    loop {
        match cursor.peek()? {
            0x66 => prefixes.operand_16 = true,
            0x67 => prefixes.address_32 = true,
            0xf2 | 0xf3 => prefixes.repeat = true,
            0xf0 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            _ => break,
        }
        cursor.at += 1;
    }
    if cursor.peek()? & 0xf0 == 0x40 {
        prefixes.rex = cursor.next()?;
    }
    let (map, opcode) = opcode(&mut cursor, &mut prefixes)?;
    let shape = shape(map, opcode, &prefixes)?;
    let mut modrm = ModRm::default();
    if shape.has_modrm {
        modrm = modrm_at(&mut cursor, &prefixes)?;
    }
    let mut immediate_bytes = shape.immediate_bytes;
    if map == ONE_BYTE && matches!(opcode, 0xf6 | 0xf7) && modrm.digit() >= 2 {
        // Of this group only `test` has an immediate.
        immediate_bytes = 0;
    }
    let immediate = cursor.number(immediate_bytes)?;
    let end = Encoded { map, opcode, modrm, immediate, len_bytes: cursor.at };
    refuse(&end, &prefixes)?;
    Some(end.describe(&prefixes))
}

/// The opcode with its map, and the prefixes that are part of it.
fn opcode(cursor: &mut Cursor<'_>, prefixes: &mut Prefixes) -> Option<(u8, u8)> {
    let first = cursor.next()?;
    match first {
        0x0f => match cursor.next()? {
            0x38 => Some((MAP_38, cursor.next()?)),
            0x3a => Some((MAP_3A, cursor.next()?)),
            second => Some((TWO_BYTE, second)),
        },
        0xc4 | 0xc5 | 0x62 | 0x8f => {
            // In 64-bit mode these are prefixes always, but for `pop`, which 8F with map 0 is.
            let second = cursor.peek()?;
            if first == 0x8f && second & 0x1f < 8 {
                return Some((ONE_BYTE, first));
            }
            prefixes.is_vector = true;
            let (map, more) = match first {
                0xc5 => (TWO_BYTE, 1),
                0xc4 | 0x8f => (second & 0x1f, 2),
                _ => (second & 7, 3),
            };
            // The inverted bits R and B.
            let inverted = !second;
            prefixes.rex = inverted >> 5 & 4 | if first == 0xc5 { 0 } else { inverted >> 5 & 1 };
            cursor.number(more)?;
            Some((map, cursor.next()?))
        }
        _ => Some((ONE_BYTE, first)),
    }
}

struct Shape {
    has_modrm: bool,
    immediate_bytes: usize,
}

const fn plain(immediate_bytes: usize) -> Option<Shape> {
    Some(Shape { has_modrm: false, immediate_bytes })
}

const fn with_modrm(immediate_bytes: usize) -> Option<Shape> {
    Some(Shape { has_modrm: true, immediate_bytes })
}

fn shape(map: u8, opcode: u8, prefixes: &Prefixes) -> Option<Shape> {
    if prefixes.is_vector {
        return match map {
            TWO_BYTE => match opcode {
                0x77 => plain(0),
                0x70..=0x73 | 0xc2 | 0xc4..=0xc6 => with_modrm(1),
                _ => with_modrm(0),
            },
            MAP_38 | 5 | 6 | 9 => with_modrm(0),
            MAP_3A | 8 => with_modrm(1),
            10 => with_modrm(4),
            _ => None,
        };
    }
    match map {
        ONE_BYTE => one_byte(opcode, prefixes),
        TWO_BYTE => two_byte(opcode),
        MAP_38 => with_modrm(0),
        _ => with_modrm(1),
    }
}

fn one_byte(opcode: u8, prefixes: &Prefixes) -> Option<Shape> {
    let word = if prefixes.operand_16 && prefixes.rex & 8 == 0 { 2 } else { 4 };
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => with_modrm(0),
            4 => plain(1),
            5 => plain(word),
            // Segment registers on the stack and decimal arithmetic: not in 64-bit mode.
            _ => None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => {
            plain(0)
        }
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => with_modrm(0),
        0x68 => plain(word),
        0x69 | 0x81 | 0xc7 | 0xf7 => with_modrm(word),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => plain(1),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 | 0xf6 => with_modrm(1),
        0xa0..=0xa3 => plain(if prefixes.address_32 { 4 } else { 8 }),
        0xa9 => plain(word),
        0xb8..=0xbf => plain(if prefixes.rex & 8 != 0 { 8 } else { word }),
        0xc2 | 0xca => plain(2),
        0xc8 => plain(3),
        0xe8 | 0xe9 => plain(4),
        0xc3
        | 0xc9
        | 0xcb
        | 0xcc
        | 0xcf
        | 0xd7
        | 0xec..=0xef
        | 0xf1
        | 0xf4
        | 0xf5
        | 0xf8..=0xfd => plain(0),
        _ => None,
    }
}

fn two_byte(opcode: u8) -> Option<Shape> {
    match opcode {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0xa6 | 0xa7 => None,
        0x05..=0x09
        | 0x0b
        | 0x0e
        | 0x30..=0x37
        | 0x77
        | 0xa0..=0xa2
        | 0xa8..=0xaa
        | 0xc8..=0xcf => plain(0),
        0x80..=0x8f => plain(4),
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => with_modrm(1),
        _ => with_modrm(0),
    }
}

/// Reads the ModRM byte with what belongs to it.
fn modrm_at(cursor: &mut Cursor<'_>, prefixes: &Prefixes) -> Option<ModRm> {
    let byte = cursor.next()?;
    let mode = byte >> 6;
    let mut relative = None;
    if mode != 3 {
        let mut displacement_bytes = [0, 1, 4][usize::from(mode)];
        if byte & 7 == 4 {
            let base = cursor.next()? & 7;
            if mode == 0 && base == 5 {
                displacement_bytes = 4;
            }
        } else if mode == 0 && byte & 7 == 5 {
            displacement_bytes = 4;
        }
        let displacement = cursor.number(displacement_bytes)?;
        relative = (byte & 0xc7 == 5).then_some(displacement);
    }
    let (r, b) = (prefixes.rex >> 2 & 1, prefixes.rex & 1);
    Some(ModRm { byte, rm: byte & 7 | b << 3, reg: byte >> 3 & 7 | r << 3, relative })
}

struct Encoded {
    map: u8,
    opcode: u8,
    modrm: ModRm,
    immediate: i64,
    len_bytes: usize,
}

/// `None` for opcodes whose ModRM byte asks for what is not there.
fn refuse(end: &Encoded, prefixes: &Prefixes) -> Option<()> {
    if end.map != ONE_BYTE || prefixes.is_vector {
        return Some(());
    }
    let digit = end.modrm.digit();
    let is_there = match end.opcode {
        0x8c => digit < 6,
        0x8d => !end.modrm.is_register(),
        0x8e => digit < 6 && digit != 1,
        0x8f => digit == 0,
        // C6 F8 and C7 F8 begin and end transactions.
        0xc6 | 0xc7 => digit == 0 || end.modrm.byte == 0xf8,
        0xfe => digit < 2,
        0xff => digit != 7 && !(matches!(digit, 3 | 5) && end.modrm.is_register()),
        _ => true,
    };
    is_there.then_some(())
}

impl Encoded {
    fn describe(&self, prefixes: &Prefixes) -> Instruction {
        let is_one = self.map == ONE_BYTE && !prefixes.is_vector;
        let is_two = self.map == TWO_BYTE && !prefixes.is_vector;
        let is_relative = is_one && matches!(self.opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xe9 | 0xeb)
            || is_two && matches!(self.opcode, 0x80..=0x8f);
        let ends = is_one
            && (matches!(self.opcode, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xe9 | 0xeb | 0xf4)
                || self.opcode == 0xff && matches!(self.modrm.digit(), 4 | 5))
            || is_two && self.opcode == 0x0b;
        let is_push = is_one && matches!(self.opcode, 0x68 | 0x6a);
        // call, and where a transaction goes on that failed.
        let leads_on = self.opcode == 0xe8 || self.opcode == 0xc7 && self.modrm.byte == 0xf8;
        Instruction {
            len_bytes: self.len_bytes,
            effect: self.effect(prefixes),
            jump: is_relative.then(|| self.immediate + self.len_bytes as i64),
            points: self.modrm.relative.map(|distance| distance + self.len_bytes as i64),
            ends,
            is_odd: is_one && self.is_odd(),
            is_bound: is_relative || is_one && leads_on || self.modrm.relative.is_some(),
            pushed: is_push.then_some(self.immediate as u32),
            popped: (is_one && matches!(self.opcode, 0x58..=0x5f))
                .then_some(self.opcode & 7 | (prefixes.rex & 1) << 3),
        }
    }

    /// Ports, segment loads, far calls and the like.
    fn is_odd(&self) -> bool {
        match self.opcode {
            0x6c..=0x6f
            | 0x8e
            | 0xca
            | 0xcb
            | 0xcf
            | 0xe4..=0xe7
            | 0xec..=0xef
            | 0xf1
            | 0xfa
            | 0xfb => true,
            0xff => matches!(self.modrm.digit(), 3 | 5),
            _ => false,
        }
    }

    fn effect(&self, prefixes: &Prefixes) -> Effect {
        let written = match self.map {
            ONE_BYTE if !prefixes.is_vector => {
                if let Some(effect) = self.moves(prefixes) {
                    return effect;
                }
                self.written_by_one_byte(prefixes)
            }
            TWO_BYTE => self.written_by_two_byte(prefixes),
            _ => Written::These(ALL),
        };
        let is_byte = self.map == ONE_BYTE && self.opcode & 1 == 0
            || self.map == TWO_BYTE && matches!(self.opcode, 0x90..=0x9f | 0xc0);
        let bit = |register: u8| {
            // Without REX, numbers 4 to 7 of byte registers are ah, ch, dh and bh.
            let high =
                if is_byte && register >= 4 && prefixes.rex == 0 { RAX | RCX | RDX | 8 } else { 0 };
            1 << (register & 15) | high
        };
        Effect::Writes(match written {
            Written::These(these) => these,
            Written::Rm if self.modrm.is_register() => bit(self.modrm.rm),
            Written::Rm => 0,
            Written::Reg => bit(self.modrm.reg),
            Written::Opcode => bit(self.opcode & 7 | (prefixes.rex & 1) << 3),
        })
    }

    /// Numbers put into registers, and moves from one to the other.
    fn moves(&self, prefixes: &Prefixes) -> Option<Effect> {
        let modrm = self.modrm;
        let is_register = modrm.is_register() && !prefixes.operand_16;
        let number = self.immediate as u32;
        match self.opcode {
            0xb8..=0xbf if !prefixes.operand_16 => {
                let is_short = prefixes.rex & 8 == 0 || i64::from(number) == self.immediate;
                let to = self.opcode & 7 | (prefixes.rex & 1) << 3;
                is_short.then_some(Effect::Loads { to, number })
            }
            0xc7 if is_register => Some(Effect::Loads { to: modrm.rm, number }),
            0x31 | 0x33 | 0x29 | 0x2b if is_register && modrm.reg == modrm.rm => {
                Some(Effect::Loads { to: modrm.rm, number: 0 })
            }
            0x89 if is_register => Some(Effect::Copies { from: modrm.reg, to: modrm.rm }),
            0x8b if is_register => Some(Effect::Copies { from: modrm.rm, to: modrm.reg }),
            _ => None,
        }
    }

    fn written_by_one_byte(&self, prefixes: &Prefixes) -> Written {
        let digit = self.modrm.digit();
        match self.opcode {
            // cmp, test, push, jumps and nop.
            0x38..=0x3d | 0x50..=0x57 | 0x68 | 0x6a | 0x70..=0x7f | 0x84 | 0x85 | 0xa8 | 0xa9 => {
                Written::These(0)
            }
            // Flags alone.
            0xf5 | 0xf8 | 0xf9 | 0xfc | 0xfd => Written::These(0),
            // cdqe, cdq, and the string instructions.
            0x98 => Written::These(RAX),
            0x99 => Written::These(RDX),
            0xa4..=0xa7 | 0xaa | 0xab | 0xae | 0xaf => Written::These(RSI | RDI | RCX),
            // nop, pause; the others exchange with rax.
            0x90 if prefixes.rex & 1 == 0 => Written::These(0),
            0xe8 => Written::These(VOLATILE),
            0xe9 | 0xeb | 0xc3 | 0xcc | 0xd8..=0xde => Written::These(0),
            0xff if matches!(digit, 2 | 3) => Written::These(VOLATILE),
            0xf6 | 0xf7 if digit >= 4 => Written::These(RAX | RDX),
            0x00..=0x3f => match self.opcode & 7 {
                0 | 1 => Written::Rm,
                2 | 3 => Written::Reg,
                // An immediate and rax.
                4 | 5 => Written::These(RAX),
                _ => Written::These(ALL),
            },
            0x80 | 0x81 | 0x83 if digit == 7 => Written::These(0),
            0x80 | 0x81 | 0x83 | 0x88 | 0x89 | 0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 => {
                Written::Rm
            }
            0x63 | 0x69 | 0x6b | 0x8a | 0x8b | 0x8d => Written::Reg,
            0x58..=0x5f | 0xb0..=0xbf => Written::Opcode,
            0xf6 | 0xf7 if digit < 2 => Written::These(0),
            0xf6 | 0xf7 if digit < 4 => Written::Rm,
            0x86 | 0x87 if !self.modrm.is_register() => Written::Reg,
            0xfe => Written::Rm,
            0xff if digit < 2 => Written::Rm,
            0xff if digit == 6 => Written::These(0),
            _ => Written::These(ALL),
        }
    }

    fn written_by_two_byte(&self, prefixes: &Prefixes) -> Written {
        match self.opcode {
            0x05 => Written::These(RAX | RCX | R11),
            0x0b | 0x1f | 0x0d | 0x18..=0x1d => Written::These(0),
            // cpuid, rdtsc.
            0xa2 => Written::These(RAX | RCX | RDX | 8),
            0x31 => Written::These(RAX | RDX),
            // endbr64.
            0x1e if self.modrm.byte == 0xfa => Written::These(0),
            // Vector registers.
            0x10..=0x17 | 0x28..=0x2b | 0x2e | 0x2f | 0x51..=0x76 | 0x7f => Written::These(0),
            0x7e if prefixes.repeat => Written::These(0),
            0x7e => Written::Rm,
            0xd0..=0xd6 | 0xd8..=0xff | 0xc2 | 0xc4 | 0xc6 => Written::These(0),
            0x2c | 0x2d | 0x50 | 0xc5 | 0xd7 if !prefixes.is_vector => Written::Reg,
            _ if prefixes.is_vector => Written::These(ALL),
            0x80..=0x8f | 0xa3 => Written::These(0),
            0x90..=0x9f | 0xa4 | 0xa5 | 0xab | 0xac | 0xad | 0xb3 | 0xbb => Written::Rm,
            0xba if self.modrm.digit() == 4 => Written::These(0),
            0xc0 | 0xc1 if !self.modrm.is_register() => Written::Reg,
            0xb0 | 0xb1 if !self.modrm.is_register() => Written::These(RAX),
            0xba => Written::Rm,
            0x40..=0x4f | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf => Written::Reg,
            0xc8..=0xcf => Written::Opcode,
            _ => Written::These(ALL),
        }
    }
}

/// Which registers an instruction writes.
enum Written {
    These(u16),
    /// What the ModRM byte's r/m means.
    Rm,
    /// Its reg.
    Reg,
    /// What the opcode's lowest three bits mean.
    Opcode,
}
