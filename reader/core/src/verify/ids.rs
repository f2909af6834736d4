//! What checksums cannot tell of ids.imx.

use std::path::Path;

use crate::error::{Error, Result};
use crate::ids::{BATCH, Ids, UserId};
use crate::interrupt::{Stop, go_on};
use crate::living::Slots;
use crate::memory::collect;

/// Vector ids are a permutation; user ids can be read and fill their section.
pub fn check_ids(ids: &Ids, n: u32, path: &Path, interrupted: Stop<'_>) -> Result<()> {
    let path = path.join("ids.imx");
    let mut seen = Slots::none(&path, n)?; // but vector ids
    let mut content_bytes = 0u64;
    let mut first = 0u32;
    while first < n {
        go_on(interrupted)?;
        let end = n.min(first.saturating_add(BATCH));
        let slots = collect(&path, (end - first) as usize, first..end)?;
        for (&slot, id) in slots.iter().zip(ids.vector_ids(&slots)?) {
            if seen.contains(id) {
                return Err(Error::corrupt(
                    &path,
                    format!("vector id of slot {slot}"),
                    "a permutation",
                    format!("{id} twice"),
                ));
            }
            seen.insert(id);
        }
        for id in ids.user_ids(&slots)? {
            content_bytes += match id {
                UserId::String(text) => text.len() as u64,
                UserId::Binary(bytes) => bytes.len() as u64,
                _ => 0,
            };
        }
        first = end;
    }
    match ids.content_bytes() {
        Some(want) if want != content_bytes => {
            Err(Error::corrupt(&path, "section \"offsets\"", format!("ids of {want} bytes in all"), content_bytes))
        }
        _ => Ok(()),
    }
}

/// Slots are in the order of vector ids.
pub fn check_order(ids: &Ids, n: u32, path: &Path, interrupted: Stop<'_>) -> Result<()> {
    for start in (0..n).step_by(BATCH as usize) {
        go_on(interrupted)?;
        let end = n.min(start.saturating_add(BATCH));
        let slots = collect(path, (end - start) as usize, start..end)?;
        let found = ids.vector_ids(&slots)?;
        if let Some((&slot, &id)) = slots.iter().zip(&found).find(|(slot, id)| slot != id) {
            let place = format!("vector id of slot {slot}");
            return Err(Error::corrupt(&path.join("ids.imx"), place, slot, id));
        }
    }
    Ok(())
}
