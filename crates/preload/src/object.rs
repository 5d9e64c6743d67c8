//! A loaded object, as the dynamic linker shows it (dl_iterate_phdr, elf(5)).
//!
//! Storey 1: system.

use core::ffi::c_char;

#[repr(C)]
pub struct Object {
    pub base: usize,
    pub name: *const c_char,
    pub headers: *const Header,
    pub count: u16,
}

impl Object {
    /// # Safety
    /// The linker shows it right now.
    pub unsafe fn headers<'a>(&self) -> &'a [Header] {
        if self.headers.is_null() {
            return &[];
        }
        // SAFETY: the object's program headers.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }
}

/// Elf64_Phdr.
#[repr(C)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: usize,
    pub physical: u64,
    pub file_bytes: usize,
    pub memory_bytes: usize,
    pub align: u64,
}

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
pub const PF_X: u32 = 1;
pub const PF_R: u32 = 4;

impl Header {
    pub fn is_around(&self, base: usize, address: usize) -> bool {
        let at = base.wrapping_add(self.address);
        at <= address && address - at < self.memory_bytes
    }

    pub fn holds(&self, base: usize, address: usize) -> bool {
        self.kind == PT_LOAD && self.is_around(base, address)
    }

    /// What is mapped of the file, readable.
    ///
    /// # Safety
    /// The object stays loaded.
    pub unsafe fn bytes<'a>(&self, base: usize) -> Option<&'a [u8]> {
        let at = base.wrapping_add(self.address) as *const u8;
        let is_whole = self.flags & PF_R != 0 && !at.is_null();
        // SAFETY: the loader mapped the file's bytes there, as the header says.
        is_whole.then(|| unsafe {
            core::slice::from_raw_parts(at, self.file_bytes.min(self.memory_bytes))
        })
    }
}
