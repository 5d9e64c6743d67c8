//! A heap whose users are killed in the middle of everything.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

use crate::common::{Random, attach, identity, map, memfd, segment};
use crate::rounds;
use yasmin_segment::heap::Heap;
use yasmin_segment::sync::Mutex;

const HEAP_BYTES: usize = 4 << 20;
const CELLS: usize = 256;

/// A place for a block that everybody may take; what is in it is whole, whoever dies.
#[repr(C)]
struct Cell {
    lock: Mutex,
    /// Its offset, or 0, and its length.
    at: AtomicU64,
    len_bytes: AtomicU64,
}

#[repr(C)]
struct Body {
    cells: [Cell; CELLS],
    done: AtomicU64,
}

pub fn heap() {
    let (file, segment) = segment::<Body>();
    let body = &segment.body;
    let base = map(&memfd(HEAP_BYTES), HEAP_BYTES);
    let heap = unsafe { Heap::create(base, HEAP_BYTES) }.unwrap();
    let block = |at: u64| NonNull::new(base.wrapping_add(at as usize)).unwrap();
    let check_content = |cell: &Cell, index: usize| {
        let (at, len_bytes) = (cell.at.load(Relaxed), cell.len_bytes.load(Relaxed));
        for byte in (0..if at == 0 { 0 } else { len_bytes as usize }).step_by(61) {
            let found = unsafe { block(at).add(byte).read() };
            assert_eq!(found, index as u8, "a block of {len_bytes} bytes has another one's");
        }
    };
    let work = |id: u64| {
        let mut attachment = attach(&file, segment);
        attachment.renew(identity()).unwrap();
        let heap = unsafe { Heap::open(base, HEAP_BYTES) }.unwrap();
        let mut random = Random(id * 0x9E37_79B9 + 1);
        loop {
            let index = random.below(CELLS as u64) as usize;
            let cell = &body.cells[index];
            let len_bytes = match random.below(20) {
                0 => random.below(40_000) + 1,
                1..4 => random.below(5_000) + 1,
                _ => random.below(500) + 1,
            };
            attachment
                .act(|by| {
                    if cell.lock.lock(by, yasmin_segment::sync::Wait::Forever)?.owner_died {
                        cell.lock.consistent(by)?;
                    }
                    check_content(cell, index);
                    let at = cell.at.load(Relaxed);
                    if at != 0 {
                        // Out of the cell first: a block may be lost, but never freed twice.
                        cell.at.store(0, Release);
                        heap.free(by, block(at)).unwrap();
                    } else if let Ok(new) = heap.alloc(by, len_bytes as usize, 1) {
                        unsafe { new.write_bytes(index as u8, len_bytes as usize) };
                        cell.len_bytes.store(len_bytes, Relaxed);
                        let at = new.addr().get() - base.addr();
                        cell.at.store(at as u64, Release);
                    }
                    body.done.fetch_add(1, Relaxed);
                    cell.lock.unlock(by)
                })
                .unwrap();
        }
    };
    let lost = AtomicU64::new(0);
    let check = || {
        let attachment = attach(&file, segment);
        attachment
            .act(|by| {
                let report = heap.check(by).unwrap();
                let held = body.cells.iter().filter(|cell| cell.at.load(Relaxed) != 0).count();
                for (index, cell) in body.cells.iter().enumerate() {
                    check_content(cell, index);
                    let at = cell.at.load(Relaxed);
                    if at != 0 {
                        let has_bytes = heap.len_bytes(by, block(at)).unwrap();
                        assert!(has_bytes as u64 >= cell.len_bytes.load(Relaxed));
                    }
                }
                assert!(report.blocks >= held, "blocks that are in use count as free");
                lost.store((report.blocks - held) as u64, Relaxed);
                Ok(())
            })
            .unwrap();
    };
    rounds("heap", &work, &check);
    let (done, lost) = (body.done.load(Relaxed), lost.load(Relaxed));
    // Between the allocator and the cell, with the program: at most one for each kill.
    println!("heap: {done} blocks allocated or freed, {lost} lost on the way to their place");
    assert!(done > 1000);
}
