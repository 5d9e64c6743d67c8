use super::*;
use crate::sync::primitive::steps::die_at;
use crate::sync::{Futex, Life, Liveness, Members, Number, Slot, Thread};

/// All have died but the one that asks.
struct OnlyMe(usize);

impl Liveness for OnlyMe {
    fn probe(&self, slot: usize) -> Life {
        if slot == self.0 { Life::Alive } else { Life::Dead }
    }
}

const PAGES: usize = 24;

struct Lab {
    bytes: Vec<[u64; PAGE_BYTES / 8]>,
    slots: [Slot; 1],
}

impl Lab {
    fn new() -> Self {
        // One more, to begin at a page's boundary.
        Self { bytes: vec![[0; PAGE_BYTES / 8]; PAGES + 3], slots: [Slot::default()] }
    }

    fn heap(&mut self) -> Heap<'static> {
        let at = self.bytes.as_mut_ptr().cast::<u8>();
        let skip = at.align_offset(PAGE_BYTES);
        // SAFETY: within the vector, which lives as long as the test uses the heap.
        unsafe { Heap::create(at.add(skip), (PAGES + 2) * PAGE_BYTES).unwrap() }
    }

    /// As a new member, all earlier ones being dead.
    fn act<T>(&self, act: impl FnOnce(&Party<'_>) -> T) -> T {
        let members = Members::new(&self.slots);
        let take = |_| Ok::<_, crate::sync::Error>(Some(()));
        let (number, ()): (Number, ()) = members.claim(Default::default(), take).unwrap();
        let (thread, waiter, liveness) = (Thread::new(1), Futex::default(), OnlyMe(1));
        act(&Party::new(members, number, &thread, &waiter, &liveness).unwrap())
    }
}

fn fill(block: NonNull<u8>, len_bytes: usize, with: u8) {
    // SAFETY: the test's own block of so many bytes.
    unsafe { block.write_bytes(with, len_bytes) };
}

fn is_filled(block: NonNull<u8>, len_bytes: usize, with: u8) -> bool {
    // SAFETY: as above.
    (0..len_bytes).all(|index| unsafe { block.add(index).read() } == with)
}

#[test]
fn blocks_of_all_sizes_and_alignments() {
    let mut lab = Lab::new();
    let heap = lab.heap();
    lab.act(|by| {
        let empty = heap.check(by).unwrap();
        assert!(empty.blocks == 0 && empty.pages >= PAGES - 1, "{empty:?}");
        for len_bytes in (0..300).chain([1000, 1024, 1025, 2049, 3584, 3585, 4096, 4097, 9000]) {
            for align in [1, 8, 16, 64, 256, 4096, 8192] {
                let block = heap.alloc(by, len_bytes, align).unwrap();
                assert!(block.addr().get().is_multiple_of(align), "{len_bytes} {align}");
                let has = heap.len_bytes(by, block).unwrap();
                assert!(has >= len_bytes);
                fill(block, len_bytes, 7);
                let other = heap.alloc(by, len_bytes, align).unwrap();
                fill(other, has, 9);
                assert!(is_filled(block, len_bytes, 7));
                heap.check(by).unwrap();
                heap.free(by, block).unwrap();
                heap.free(by, other).unwrap();
            }
        }
        assert_eq!(heap.check(by).unwrap().blocks, 0);
    });
}

#[test]
fn what_is_full_says_so_and_gives_all_back() {
    let mut lab = Lab::new();
    let heap = lab.heap();
    lab.act(|by| {
        for len_bytes in [16, 100, 2000, 4096, 12_000] {
            let mut blocks = Vec::new();
            let error = loop {
                match heap.alloc(by, len_bytes, 1) {
                    Ok(block) => blocks.push(block),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::NoMemory { .. }), "{error}");
            assert_eq!(heap.check(by).unwrap().blocks, blocks.len());
            for block in blocks {
                heap.free(by, block).unwrap();
            }
        }
        // A slab of each class may stay, and no more.
        assert!(heap.check(by).unwrap().used_pages <= 6);
    });
}

#[test]
fn realloc_keeps_the_content() {
    let mut lab = Lab::new();
    let heap = lab.heap();
    lab.act(|by| {
        let mut block = heap.alloc(by, 10, 1).unwrap();
        fill(block, 10, 5);
        for len_bytes in [20, 200, 3000, 5000, 20_000, 9000, 4097, 100, 10] {
            block = heap.realloc(by, block, len_bytes, 8).unwrap();
            assert!(is_filled(block, 10, 5), "{len_bytes}");
            assert_eq!(heap.check(by).unwrap().blocks, 1);
        }
        let error = heap.realloc(by, block, 1 << 40, 1).unwrap_err();
        assert!(matches!(error, Error::NoMemory { .. }));
        assert!(is_filled(block, 10, 5));
    });
}

#[test]
fn what_is_no_block_is_refused() {
    let mut lab = Lab::new();
    let heap = lab.heap();
    lab.act(|by| {
        let block = heap.alloc(by, 100, 1).unwrap();
        let run = heap.alloc(by, 9000, 1).unwrap();
        let inside = |block: NonNull<u8>, by_bytes| {
            NonNull::new(block.as_ptr().wrapping_add(by_bytes)).unwrap()
        };
        let wrong = [inside(block, 1), inside(block, 112), inside(run, 4096), inside(run, 1 << 30)];
        for address in wrong {
            assert!(matches!(heap.free(by, address), Err(Error::NotABlock { .. })), "{address:?}");
        }
        for block in [block, run] {
            heap.free(by, block).unwrap();
            assert!(matches!(heap.free(by, block), Err(Error::NotABlock { .. })));
        }
        assert!(matches!(heap.alloc(by, 1, 3), Err(Error::Alignment { .. })));
    });
}

/// A heap with a bit of everything: a full slab, a slab with holes, runs.
fn furnish(heap: Heap<'_>, by: &Party<'_>) -> Vec<(NonNull<u8>, usize)> {
    let sizes = [1024, 1024, 1024, 1024, 100, 100, 3000, 5000, 9000];
    let alloc = |len_bytes| (heap.alloc(by, len_bytes, 1).unwrap(), len_bytes);
    let blocks: Vec<_> = sizes.into_iter().map(alloc).collect();
    for (index, (block, len_bytes)) in blocks.iter().enumerate() {
        fill(*block, *len_bytes, index as u8);
    }
    blocks
}

type Deed = fn(Heap<'_>, &Party<'_>, &[(NonNull<u8>, usize)]) -> Result<(), Error>;

/// Plays `deed` with a death before each of its steps. Afterwards the heap is whole, and has as
/// many blocks as before or, where `may_be`, so many more. Nothing else has changed.
fn die_at_each_step(deed: Deed, may_be: isize, spares: Option<usize>) {
    for step in 0.. {
        let mut lab = Lab::new();
        let heap = lab.heap();
        let blocks = lab.act(|by| furnish(heap, by));
        let before = lab.act(|by| heap.check(by)).unwrap().blocks;
        let result = lab.act(|by| die_at(step, || deed(heap, by, &blocks)));
        if let Some(result) = result {
            result.unwrap();
            assert!(step > 10, "the deed has {step} steps");
            return;
        }
        // Who mends dies too, at many of its steps, others each time; then one mends all.
        for step in (step % 11..).step_by(11) {
            if lab.act(|by| die_at(step, || heap.check(by))).is_some() {
                break;
            }
        }
        let after = lab.act(|by| heap.check(by)).unwrap().blocks;
        let change = after as isize - before as isize;
        assert!(change == 0 || change == may_be, "step {step}: {before} blocks, then {after}");
        for (index, (block, len_bytes)) in blocks.iter().enumerate() {
            if spares != Some(index) {
                assert!(is_filled(*block, *len_bytes, index as u8), "step {step}, block {index}");
                assert!(lab.act(|by| heap.len_bytes(by, *block)).unwrap() >= *len_bytes);
            }
        }
        // It is of use.
        lab.act(|by| {
            for len_bytes in [16, 100, 1024, 3000, 5000] {
                let block = heap.alloc(by, len_bytes, 1).unwrap();
                fill(block, len_bytes, 0xEE);
            }
            for (block, _) in &blocks {
                let _ = heap.free(by, *block);
            }
            assert!(heap.check(by).unwrap().blocks <= 7);
        });
    }
}

/// The last two steps of an allocation are behind its commitment: the block is the caller's,
/// who had no time to say so.
const COMMITTED: isize = 1;

#[test]
fn dies_in_alloc() {
    for deed in [
        (|heap, by, _| heap.alloc(by, 100, 1).map(|_| ())) as Deed,
        |heap, by, _| heap.alloc(by, 1024, 1).map(|_| ()),
        |heap, by, _| heap.alloc(by, 2000, 1).map(|_| ()),
        |heap, by, _| heap.alloc(by, 10_000, 8192).map(|_| ()),
    ] {
        die_at_each_step(deed, COMMITTED, None);
    }
}

#[test]
fn dies_in_free() {
    die_at_each_step(|heap, by, blocks| heap.free(by, blocks[0].0), -1, Some(0));
    die_at_each_step(|heap, by, blocks| heap.free(by, blocks[4].0), -1, Some(4));
    die_at_each_step(|heap, by, blocks| heap.free(by, blocks[6].0), -1, Some(6));
    die_at_each_step(|heap, by, blocks| heap.free(by, blocks[8].0), -1, Some(8));
}

#[test]
fn dies_in_realloc() {
    let deeds: [(usize, Deed); 6] = [
        (4, |heap, by, b| heap.realloc(by, b[4].0, 200, 1).map(|_| ())),
        (0, |heap, by, b| heap.realloc(by, b[0].0, 2000, 1).map(|_| ())),
        (6, |heap, by, b| heap.realloc(by, b[6].0, 5000, 1).map(|_| ())),
        (7, |heap, by, b| heap.realloc(by, b[7].0, 12_000, 1).map(|_| ())),
        (8, |heap, by, b| heap.realloc(by, b[8].0, 4097, 1).map(|_| ())),
        (8, |heap, by, b| heap.realloc(by, b[8].0, 100, 1).map(|_| ())),
    ];
    for (block, deed) in deeds {
        die_at_each_step(deed, 0, Some(block));
    }
}

/// Rubbish in every word of what the allocator knows: an error or a heap that works, and an end.
#[test]
fn rubbish_ends_in_errors() {
    let (mut refused, mut served) = (0, 0);
    for word in 0..(4 * PAGE_BYTES / 8) {
        for rubbish in [0, 1, 5, 0x102, 0x203, u64::MAX, 1 << 33] {
            let mut lab = Lab::new();
            let heap = lab.heap();
            lab.act(|by| {
                let blocks = furnish(heap, by);
                let head: *mut u64 = std::ptr::from_ref(heap.head).cast_mut().cast();
                let upto = (heap.data.addr() - head.addr()) / 8;
                // The lock's own words are the lock's matter.
                if word >= upto || (2..6).contains(&word) {
                    return;
                }
                // SAFETY: between the head and the pages.
                unsafe { head.add(word).write(rubbish) };
                let mut note = |is_ok: bool| if is_ok { served += 1 } else { refused += 1 };
                for len_bytes in [16, 100, 1024, 3000, 9000] {
                    note(heap.alloc(by, len_bytes, 1).is_ok());
                }
                for (block, _) in &blocks {
                    note(heap.free(by, *block).is_ok());
                }
                note(heap.check(by).is_ok());
                note(heap.recover().is_ok());
            });
        }
    }
    assert!(refused > 100 && served > 1000, "{refused} {served}");
}

/// The first slab of a list is what another member says: its blocks may lie behind the pages.
#[test]
fn a_slab_beyond_the_end_is_refused() {
    let mut lab = Lab::new();
    let heap = lab.heap();
    lab.act(|by| {
        let class = Class::of(3000, 1).unwrap();
        assert!(class.pages() > 1);
        let last = heap.table.count() - 1;
        heap.table.line(last).unwrap().set_kind(Kind::Slab { class });
        heap.head.lists[class.index()].store(last as u64 + 1, Ordering::Relaxed);
        assert!(matches!(heap.alloc(by, 3000, 1), Err(Error::Spoiled { .. })));
    });
}
