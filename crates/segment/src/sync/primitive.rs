//! The atomics that members share: loom's under `--cfg loom`, else the processor's.
//!
//! In tests every access is a step, and a thread can be made to die before a certain one
//! ([`steps`]). Death is an unwinding that nothing of this crate stops, and on which nothing of
//! it writes to shared memory.

#[cfg(not(any(test, loom)))]
pub use core::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::Ordering;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::Ordering;

#[cfg(any(test, loom))]
pub use stepped::{AtomicU32, AtomicU64};

/// Behind a read-modify-write: no later load comes before it.
pub(crate) fn full_fence() {
    // A locked instruction is one already.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(all(not(target_arch = "x86_64"), not(loom)))]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The store before it, /then/ those behind it.
pub(crate) fn write_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Ordering::Release);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::Release);
}

/// The loads before it, /then/ those behind it.
pub(crate) fn read_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Ordering::Acquire);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::Acquire);
}

pub(crate) fn look_again() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(any(test, loom))]
pub mod steps {
    //! Deaths at a chosen step of the calling thread.
    #![cfg_attr(not(loom), allow(dead_code))]

    use std::cell::Cell;

    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no const")]
    mod left {
        use super::Cell;
        #[cfg(loom)]
        use loom::thread_local;

        thread_local! {
            /// Steps until death; negative: never.
            pub(super) static LEFT: Cell<i64> = Cell::new(-1);
        }
    }
    use left::LEFT;

    struct Killed;

    /// Runs `act`, which dies before its step number `steps`, counted from 0. None: it died.
    pub fn die_at<T>(steps: i64, act: impl FnOnce() -> T) -> Option<T> {
        LEFT.with(|left| left.set(steps));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        LEFT.with(|left| left.set(-1));
        match result {
            Ok(value) => Some(value),
            Err(payload) if payload.is::<Killed>() => None,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Runs `act` without a step: what the kernel does has no middle.
    pub fn at_once<T>(act: impl FnOnce() -> T) -> T {
        let left = LEFT.with(|left| left.replace(-1));
        let result = act();
        LEFT.with(|cell| cell.set(left));
        result
    }

    pub(crate) fn step() {
        let left = LEFT.with(Cell::get);
        if left == 0 {
            LEFT.with(|left| left.set(-1));
            std::panic::resume_unwind(Box::new(Killed));
        }
        if left > 0 {
            LEFT.with(|cell| cell.set(left - 1));
        }
    }
}

#[cfg(any(test, loom))]
mod stepped {
    use super::Ordering;
    use super::steps::step;

    macro_rules! stepped {
        ($name:ident, $int:ty) => {
            #[repr(transparent)]
            pub struct $name(
                #[cfg(loom)] loom::sync::atomic::$name,
                #[cfg(not(loom))] core::sync::atomic::$name,
            );

            #[allow(dead_code)]
            impl $name {
                pub fn new(value: $int) -> Self {
                    #[cfg(loom)]
                    return Self(loom::sync::atomic::$name::new(value));
                    #[cfg(not(loom))]
                    Self(core::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $int {
                    step();
                    self.0.load(order)
                }

                pub fn store(&self, value: $int, order: Ordering) {
                    step();
                    self.0.store(value, order);
                }

                pub fn compare_exchange(
                    &self,
                    from: $int,
                    to: $int,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$int, $int> {
                    step();
                    self.0.compare_exchange(from, to, done, failed)
                }

                pub fn fetch_add(&self, by: $int, order: Ordering) -> $int {
                    step();
                    self.0.fetch_add(by, order)
                }

                pub fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                    step();
                    self.0.fetch_or(bits, order)
                }

                pub fn swap(&self, value: $int, order: Ordering) -> $int {
                    step();
                    self.0.swap(value, order)
                }

                pub fn fetch_max(&self, with: $int, order: Ordering) -> $int {
                    step();
                    self.0.fetch_max(with, order)
                }
            }
        };
    }

    stepped!(AtomicU32, u32);
    stepped!(AtomicU64, u64);
}
