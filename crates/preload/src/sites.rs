//! All instructions of an object that enter the kernel and may concern this library get detours, or none does.
//!
//! Storey 4: life.

use yasmin_text::Text;
use yasmin_text::sites::{self, Refusal, Site};

use crate::cache::{Cache, SITES};
use crate::detours::{self, Detour, Heads};
use crate::object::{Header, PF_X, PT_LOAD};
use crate::{stacks, sys, text};

/// Gives the object detours, which all lead to `heads`. Then its text need not be looked through: an address in it.
/// `cache`: where its sites may be kept, given its text. `needs_cache`: they are not searched for where they cannot be
/// kept.
///
/// # Safety
/// The object's own base and headers. It stays, and nobody runs its text yet.
pub unsafe fn divert(
    base: usize,
    headers: &'static [Header],
    heads: &Heads,
    cache: impl FnOnce(&[u8]) -> Option<Cache>,
    needs_cache: bool,
) -> Option<usize> {
    // On a stack with room.
    stacks::on_another(|| {
        let is_text = |header: &&Header| header.kind == PT_LOAD && header.flags & PF_X != 0;
        let mut texts = headers.iter().filter(is_text);
        let (Some(header), None) = (texts.next(), texts.next()) else { return None };
        // SAFETY: the object stays.
        let (code, unwind) = unsafe { (header.bytes(base), text::unwind_of(base, headers)) };
        let code = code?;
        let text = Text { code, address: base.wrapping_add(header.address) as u64, unwind };
        let mut sites = [Site::NONE; SITES];
        let sites = find(&text, &mut sites, cache(code).as_ref(), needs_cache)?;
        let mut places = [Detour::NONE; SITES];
        for (place, site) in places.iter_mut().zip(sites) {
            *place = Detour { site: *site, is_thread: false };
        }
        let is_diverted = sites.is_empty() || detours::divert(code, &places[..sites.len()], heads);
        is_diverted.then_some(code.as_ptr() as usize)
    })?
}

/// All of them; `None`: not each can have a detour.
fn find<'a>(
    text: &Text<'_>,
    sites: &'a mut [Site; SITES],
    cache: Option<&Cache>,
    needs_cache: bool,
) -> Option<&'a [Site]> {
    if let Some(kept) = cache.and_then(|cache| cache.read(sites)) {
        let count = kept?;
        if fit(text.code, &sites[..count]) {
            return Some(&sites[..count]);
        }
    }
    if needs_cache && !cache.is_some_and(Cache::keeps) {
        return None;
    }
    let count = search(text, sites)?.ok();
    if let Some(cache) = cache {
        cache.write(count.map(|count| &sites[..count]));
    }
    Some(&sites[..count?])
}

fn fit(code: &[u8], sites: &[Site]) -> bool {
    let mut free_from = 0;
    sites.iter().all(|site| {
        let fits = site.fits(code, free_from);
        free_from = site.end();
        fits
    })
}

/// `None`: without memory.
fn search(text: &Text<'_>, sites: &mut [Site]) -> Option<Result<usize, Refusal>> {
    const BYTES: usize = sites::ROOM * size_of::<u64>();
    let room = sys::map_private(BYTES)?;
    // SAFETY: fresh memory of zeros, given back below.
    let words = unsafe { core::slice::from_raw_parts_mut(room.cast(), sites::ROOM) };
    let count = sites::all(text, words, sites);
    // SAFETY: nobody has it any more.
    unsafe { sys::unmap(room, BYTES) };
    Some(count)
}
