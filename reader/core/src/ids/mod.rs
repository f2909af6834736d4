//! ids.imx: slots to vector ids and user ids (docs/formats/ids.md).
//!
//! Nothing of the index's size is kept in memory, unless [`Ids::hold`] or [`Ids::inverse`] is called: the checksum of a
//! page is read with the page. A look-up of many slots reads each page once. Searches read the pages through their
//! engines (`search::with_ids`); [`Ids::vector_ids`] and [`Ids::user_ids`] read them one after the other.

mod file;
mod find;
mod found;
mod gather;
mod inverse;
mod lookup;
mod reading;

pub use file::{IDS_FILE, IdType, Ids, UserId};
pub(crate) use find::BATCH;
pub use found::{Texts, UserIds};
pub use inverse::Inverse;
pub(crate) use lookup::Lookup;
