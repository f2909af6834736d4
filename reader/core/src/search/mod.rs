//! What the searches of all kinds of indexes share.
//!
//! | file | one idea |
//! |---|---|
//! | `queries` | queries as the caller gave them, and one of them prepared for an index |
//! | `limits` | what every search may ask for |
//! | `task`, `threads` | one thread of queries over an engine; all threads of a search |
//! | `reads` | the reads of a query |
//! | `exact` | the distance of a query to a stored vector |
//! | `nearest`, `candidates` | the nearest seen so far, and those that were not visited yet |
//! | `stamped` | a hash map that is emptied in constant time |
//! | `answers` | what was found, by thread and for all queries |
//! | `with_ids` | the ids of the results, read at the end of a query |

pub(crate) mod answers;
pub(crate) mod candidates;
pub(crate) mod exact;
pub(crate) mod limits;
pub(crate) mod nearest;
pub(crate) mod queries;
pub(crate) mod reads;
pub(crate) mod stamped;
pub(crate) mod task;
pub(crate) mod threads;
pub(crate) mod with_ids;

pub use answers::Output;
pub use limits::{MAX_INFLIGHT, MAX_THREADS};
pub use queries::{Queries, Values};
