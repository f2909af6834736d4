//! What the searches of all kinds of indexes share.
//!
//! | file | one idea |
//! |---|---|
//! | `queries` | queries as the caller gave them, and one of them prepared for an index |
//! | `limits` | what every search may ask for |
//! | `task` | what a kind of index provides for its queries |
//! | `pool`, `desk`, `call` | threads that live on; where one of them works; a search that they work for |
//! | `later` | a search that runs while its caller does other things |
//! | `reads` | the reads of a query |
//! | `exact` | the distance of a query to a stored vector |
//! | `nearest`, `candidates` | the nearest seen so far, and those that were not visited yet |
//! | `stamped` | a hash map that is emptied in constant time |
//! | `answers` | what was found |
//! | `with_ids` | the ids of the results, read at the end of a query |

pub(crate) mod answers;
pub(crate) mod call;
pub(crate) mod candidates;
pub(crate) mod desk;
pub(crate) mod exact;
pub(crate) mod later;
pub(crate) mod limits;
pub(crate) mod nearest;
pub(crate) mod pool;
pub(crate) mod queries;
pub(crate) mod reads;
pub(crate) mod stamped;
pub(crate) mod task;
pub(crate) mod with_ids;

pub use answers::Output;
pub use later::Ticket;
pub use limits::{MAX_INFLIGHT, MAX_THREADS};
pub use queries::{OwnedQueries, Queries, Values};
