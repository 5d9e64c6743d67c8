//! Where an object's functions lie, by the table that unwinders search (`.eh_frame_hdr`).
//!
//! Compilers describe each function there, and most people who write assembler do. The linker
//! sorts it, and the kernel's loader maps it.

/// Encodings of the table that all linkers write: pcrel|sdata4, udata4, datarel|sdata4.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_BYTES: u64 = 12;
const ENTRY_BYTES: u64 = 8;

/// The table of one object.
#[derive(Clone, Copy)]
pub struct Unwind<'a> {
    /// What is mapped around the table, the descriptions of its functions too.
    bytes: &'a [u8],
    /// The address of `bytes`.
    address: u64,
    /// The address of the table.
    table: u64,
    entries: u64,
}

impl<'a> Unwind<'a> {
    /// The table at `table`, in `bytes` that are mapped at `address`; `None`: it is of no kind
    /// that is known here, or says nothing.
    pub fn new(bytes: &'a [u8], address: u64, table: u64) -> Option<Self> {
        let mut unwind = Self { bytes, address, table, entries: 0 };
        let at = usize::try_from(table.checked_sub(address)?).ok()?;
        if bytes.get(at..at.checked_add(4)?)? != ENCODINGS {
            return None;
        }
        unwind.entries = u64::from(unwind.word(table.wrapping_add(8))?);
        (unwind.entries > 0).then_some(unwind)
    }

    fn word(&self, address: u64) -> Option<u32> {
        let at = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A number relative to `base`.
    fn relative(&self, base: u64, address: u64) -> Option<u64> {
        Some(base.wrapping_add_signed(i64::from(self.word(address)? as i32)))
    }

    fn entry(&self, index: u64) -> u64 {
        self.table.wrapping_add(HEADER_BYTES).wrapping_add(index.wrapping_mul(ENTRY_BYTES))
    }

    fn start(&self, index: u64) -> Option<u64> {
        self.relative(self.table, self.entry(index))
    }

    /// The end of the function that begins at `start`; at least a byte of it where it is not said.
    fn end(&self, index: u64, start: u64) -> Option<u64> {
        let description = self.relative(self.table, self.entry(index).wrapping_add(4))?;
        // Length, identifier, beginning, length of the function.
        let begin = description.wrapping_add(8);
        let is_plain = self.relative(begin, begin) == Some(start);
        let len = if is_plain { self.word(begin.wrapping_add(4))? } else { 1 };
        Some(start.wrapping_add(u64::from(len)))
    }

    /// The function that holds `address`, from its first byte to behind its last one.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let start = self.start(index)?;
        let end = self.end(index, start)?;
        (start <= address && address < end).then_some((start, end))
    }

    /// Whether `address` lies between the first function and the last one.
    pub fn spans(&self, address: u64) -> bool {
        let last = self.entries - 1;
        let first = self.start(0);
        let end = self.start(last).and_then(|start| self.end(last, start));
        // What cannot be read claims everything.
        first.is_none_or(|first| first <= address) && end.is_none_or(|end| address < end)
    }
}
