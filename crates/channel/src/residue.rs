//! An end's residue: what another process needs to go on reading where one stopped (spec/wire.md
//! section 6.6). A sealed memfd.
//!
//! ```text
//! 0x0000 header    0x1000 side page    0x2000 the channel's pages, as they were
//! ```

/// First 8 bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"YASMINES");
/// Version of this layout, for libraries of one build.
pub const VERSION: u32 = 5;
/// Offset of the side page.
pub const SIDE_AT: usize = 0x1000;
/// Offset of the channel's pages.
pub const CHANNEL_AT: usize = 0x2000;
/// TCP_NOTSENT_LOWAT of a socket for which the broker has a residue: no limit, and nobody's
/// own value.
pub const MARK: u32 = 0x7fff_fe57;
