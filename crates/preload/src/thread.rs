//! Words of each thread's own.
//!
//! Storey 1: system.

/// Stands before each instruction that goes to the thread's block by fs, and notes where it is. In a
/// program that has fs for itself (`bare`) the injector turns all of these into such by gs; it does so
/// by their first byte, the prefix.
macro_rules! by_block {
    () => {
        "778: .pushsection yasmin_by_block,\"aR\",@progbits; .long 778b - .; .popsection"
    };
}
pub(crate) use by_block;

/// A word of each thread, 0 in a new one, as a module with `get` and `set`; its symbol is `yasmin_`
/// and the module's name. Initial-exec: signal handlers use it, and nothing may allocate then. Not
/// cached over a call: a handler, or a vfork child in the same thread's block, may have set it.
macro_rules! thread_word {
    ($(#[$about:meta])* $name:ident: u32) => {
        thread_word!($(#[$about])* $name: u32, "4", "dword", "{value:e}");
    };
    ($(#[$about:meta])* $name:ident: u64) => {
        thread_word!($(#[$about])* $name: u64, "8", "qword", "{value}");
    };
    ($(#[$about:meta])* $name:ident: $type:ident, $size:literal, $width:literal, $value:literal) => {
        core::arch::global_asm!(
            ".pushsection .tbss,\"awT\",@nobits",
            concat!(".balign ", $size),
            concat!(".globl yasmin_", stringify!($name)),
            concat!(".hidden yasmin_", stringify!($name)),
            concat!(".type yasmin_", stringify!($name), ", @object"),
            concat!(".size yasmin_", stringify!($name), ", ", $size),
            concat!("yasmin_", stringify!($name), ":"),
            concat!(".zero ", $size),
            ".popsection",
        );

        $(#[$about])*
        mod $name {
            #[inline]
            pub fn get() -> $type {
                let value: $type;
                // SAFETY: reads this thread's own word.
                unsafe {
                    core::arch::asm!(
                        concat!("mov {at}, qword ptr [rip + yasmin_", stringify!($name), "@GOTTPOFF]"),
                        $crate::thread::by_block!(),
                        concat!("mov ", $value, ", ", $width, " ptr fs:[{at}]"),
                        at = out(reg) _,
                        value = out(reg) value,
                        options(nostack, readonly, preserves_flags)
                    );
                }
                value
            }

            #[allow(dead_code, reason = "words that assembly alone sets")]
            pub fn set(value: $type) {
                // SAFETY: writes this thread's own word.
                unsafe {
                    core::arch::asm!(
                        concat!("mov {at}, qword ptr [rip + yasmin_", stringify!($name), "@GOTTPOFF]"),
                        $crate::thread::by_block!(),
                        concat!("mov ", $width, " ptr fs:[{at}], ", $value),
                        at = out(reg) _,
                        value = in(reg) value,
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}
pub(crate) use thread_word;
