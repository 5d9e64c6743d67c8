//! A heap in a segment, whose blocks every member uses by the same pointers.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use nix::errno::Errno;
use yasmin_segment::heap::{Error, Heap};
use yasmin_segment::sync::{self, Party};

use crate::member::Member;
use crate::note;

/// `yasmin_heap` in C: one process's view of it.
pub struct View {
    heap: Heap<'static>,
    member: *const Member,
}

/// What any block is aligned to, as malloc's.
const ALIGN_BYTES: usize = 16;

fn fail(error: Error) -> c_int {
    note(&error);
    error.errno()
}

fn pointer<T>(result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| {
        Errno::set_raw(fail(error));
        null_mut()
    })
}

impl View {
    fn act<T>(&self, act: impl FnOnce(&Party<'_>) -> Result<T, Error>) -> Result<T, Error> {
        // SAFETY: the member outlives its heaps, as who made them promised.
        let member = unsafe { &*self.member };
        let mut result = None;
        member.act(|by| {
            result = Some(act(by));
            Ok(())
        })?;
        result.unwrap_or(Err(Error::Lock(sync::Error::NotMember)))
    }
}

/// # Safety
/// `member` is NULL or was not left.
unsafe fn view(
    member: *const Member,
    start: *mut c_void,
    len_bytes: usize,
    make: unsafe fn(*mut u8, usize) -> Result<Heap<'static>, Error>,
) -> *mut View {
    let view = || {
        // SAFETY: as the caller promises.
        let bytes = unsafe { member.as_ref() }.map(|member| member.bytes.clone());
        let bytes = bytes.ok_or(Error::Lock(sync::Error::NotMember))?;
        let end = start.addr().checked_add(len_bytes);
        if start.addr() < bytes.start || end.is_none_or(|end| end > bytes.end) {
            return Err(Error::Outside { at: start.addr(), len_bytes });
        }
        // SAFETY: inside the mapping, which stays while the member is there; what else uses it is
        // the caller's affair.
        let heap = unsafe { make(start.cast(), len_bytes) }?;
        Ok(Box::into_raw(Box::new(View { heap, member })))
    };
    pointer(view())
}

/// # Safety
/// `member` was not left, and is not before the heap is closed; nothing but heaps uses the bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_create(
    member: *const Member,
    start: *mut c_void,
    len_bytes: usize,
) -> *mut View {
    // SAFETY: as the caller promises.
    unsafe { view(member, start, len_bytes, Heap::create) }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_open(
    member: *const Member,
    start: *mut c_void,
    len_bytes: usize,
) -> *mut View {
    // SAFETY: as the caller promises.
    unsafe { view(member, start, len_bytes, Heap::open) }
}

/// # Safety
/// `heap` is NULL or was not closed. Its blocks stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_close(heap: *mut View) {
    if !heap.is_null() {
        // SAFETY: made by `view`, and closed once, as the caller promises.
        drop(unsafe { Box::from_raw(heap) });
    }
}

/// # Safety
/// `heap` is NULL or was not closed.
unsafe fn seen<'a>(heap: *const View) -> Result<&'a View, Error> {
    // SAFETY: as the caller promises.
    unsafe { heap.as_ref() }.ok_or(Error::Lock(sync::Error::Invalid("NULL is no heap")))
}

/// # Safety
/// `heap` was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_alloc(heap: *const View, len_bytes: usize) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { yasmin_heap_aligned_alloc(heap, ALIGN_BYTES, len_bytes) }
}

/// # Safety
/// `heap` was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_aligned_alloc(
    heap: *const View,
    align_bytes: usize,
    len_bytes: usize,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    let block = unsafe { seen(heap) }
        .and_then(|view| view.act(|by| view.heap.alloc(by, len_bytes, align_bytes)));
    pointer(block.map(|block| block.as_ptr().cast()))
}

/// # Safety
/// `heap` was not closed; nobody uses the block any more, if it is larger than it will be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_realloc(
    heap: *const View,
    block: *mut c_void,
    len_bytes: usize,
) -> *mut c_void {
    let Some(block) = NonNull::new(block.cast::<u8>()) else {
        // SAFETY: as the caller promises.
        return unsafe { yasmin_heap_alloc(heap, len_bytes) };
    };
    // SAFETY: as the caller promises.
    let block = unsafe { seen(heap) }
        .and_then(|view| view.act(|by| view.heap.realloc(by, block, len_bytes, ALIGN_BYTES)));
    pointer(block.map(|block| block.as_ptr().cast()))
}

/// # Safety
/// `heap` was not closed; nobody uses the block any more. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_free(heap: *const View, block: *mut c_void) -> c_int {
    let Some(block) = NonNull::new(block.cast::<u8>()) else { return 0 };
    // SAFETY: as the caller promises.
    let freed = unsafe { seen(heap) }.and_then(|view| view.act(|by| view.heap.free(by, block)));
    freed.map_or_else(fail, |()| 0)
}

/// # Safety
/// `heap` was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_block_size(heap: *const View, block: *mut c_void) -> usize {
    let len = || {
        let at = NonNull::new(block.cast::<u8>()).ok_or(Error::NotABlock { address: 0 })?;
        // SAFETY: as the caller promises.
        let view = unsafe { seen(heap) }?;
        view.act(|by| view.heap.len_bytes(by, at))
    };
    len().unwrap_or_else(|error| {
        Errno::set_raw(fail(error));
        0
    })
}

/// # Safety
/// `heap` was not closed; `blocks` and `bytes` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_heap_check(
    heap: *const View,
    blocks: *mut usize,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let report = unsafe { seen(heap) }.and_then(|view| view.act(|by| view.heap.check(by)));
    match report {
        Err(error) => fail(error),
        Ok(report) => {
            for (at, value) in [(blocks, report.blocks), (bytes, report.block_bytes)] {
                if !at.is_null() {
                    // SAFETY: as the caller promises.
                    unsafe { at.write(value) };
                }
            }
            0
        }
    }
}
