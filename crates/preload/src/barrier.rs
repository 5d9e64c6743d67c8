//! membarrier(2): all running threads of the process pass a barrier, so that the side that acts
//! often needs a plain store only.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys::call;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: usize = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

static IS_THERE: AtomicBool = AtomicBool::new(false);

pub fn start() {
    // SAFETY: no memory involved.
    let ret = unsafe { call!(membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) };
    IS_THERE.store(ret == 0, Ordering::Relaxed);
}

/// Whether the kernel has it.
#[inline]
pub fn is_there() -> bool {
    IS_THERE.load(Ordering::Relaxed)
}

/// Has all running threads of the process pass a barrier. False: the kernel does not do that.
pub fn pass() -> bool {
    // SAFETY: no memory involved.
    is_there() && unsafe { call!(membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) } == 0
}
