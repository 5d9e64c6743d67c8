use std::{env, fs};
use yasmin_text::*;
fn main() {
    for path in env::args().skip(1) {
        let Ok(f) = fs::read(&path) else { continue };
        if f.len() < 64 || &f[..5] != b"\x7fELF\x02" || f[18] != 62 {
            continue;
        }
        let u16 = |o: usize| u16::from_le_bytes([f[o], f[o + 1]]) as usize;
        let u64 = |o: usize| u64::from_le_bytes(f[o..o + 8].try_into().unwrap()) as usize;
        let (off, size, n) = (u64(32), u16(54), u16(56));
        let seg = |addr: usize| {
            (0..n).map(|i| off + i * size).find_map(|p| {
                let (o, v, len) = (u64(p + 8), u64(p + 16), u64(p + 32));
                (f[p] == 1 && v <= addr && addr < v + len)
                    .then(|| f.get(o..o + len).map(|b| (b, v)))?
            })
        };
        let unwind = (0..n)
            .map(|i| off + i * size)
            .find(|&p| f[p..p + 4] == [0x50, 0xe5, 0x74, 0x64])
            .and_then(|p| {
                let h = u64(p + 16);
                let (b, v) = seg(h)?;
                Unwind::new(b, v as u64, h as u64)
            });
        for i in 0..n {
            let p = off + i * size;
            if p + 56 > f.len() {
                break;
            }
            let flags = f[p + 4];
            if f[p] != 1 || flags & 1 == 0 {
                continue;
            }
            let (o, v, len) = (u64(p + 8), u64(p + 16), u64(p + 32));
            let Some(code) = f.get(o..o + len) else { continue };
            let text = Text { code, address: v as u64, unwind };
            let mut at = 0;
            while let Some(x) = next(code, at) {
                println!(
                    "{path} {:x} {:02x}{:02x} {:?}",
                    v + x,
                    code[x],
                    code[x + 1],
                    judge(&text, x)
                );
                at = x + 1;
            }
        }
    }
}
