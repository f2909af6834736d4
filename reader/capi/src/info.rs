//! Describing an index.

use indexmill_core::ids::IdType;
use indexmill_core::{Dtype, Metric};

use crate::error::guard;
use crate::index::ImIndex;
use crate::opened::Opened;
use crate::pointers::borrow;
use crate::structures::{Grows, Structures};

/// Component type: IEEE binary32; float16, sq16 and sq8 indexes take such queries, too.
pub const IM_FLOAT32: u32 = 1;
/// Component type: IEEE binary16 (indexes only).
pub const IM_FLOAT16: u32 = 2;
/// Component type: unsigned bytes.
pub const IM_UINT8: u32 = 3;
/// Component type: signed bytes.
pub const IM_INT8: u32 = 4;
/// Component type: 16-bit codes of scaled floats (indexes only).
pub const IM_SQ16: u32 = 5;
/// Component type: 8-bit codes of scaled floats (indexes only).
pub const IM_SQ8: u32 = 6;

/// Metric: squared Euclidean distance; smaller is better.
pub const IM_METRIC_L2: u32 = 1;
/// Metric: inner product; larger is better.
pub const IM_METRIC_IP: u32 = 2;
/// Metric: cosine; larger is better.
pub const IM_METRIC_COSINE: u32 = 3;

/// User ids: none, a vector is known by its vector id, its position in the input.
pub const IM_ID_NONE: u32 = 0;
/// User ids: signed 64 bits.
pub const IM_ID_INT64: u32 = 1;
/// User ids: unsigned 64 bits.
pub const IM_ID_UINT64: u32 = 2;
/// User ids: UTF-8 text.
pub const IM_ID_STRING: u32 = 3;
/// User ids: bytes.
pub const IM_ID_BINARY: u32 = 4;

/// Kind: a graph.
pub const IM_KIND_GRAPH: u32 = 1;
/// Kind: inverted lists.
pub const IM_KIND_IVF: u32 = 2;
/// Kind: hash tables.
pub const IM_KIND_LSH: u32 = 3;

/// What an index is; codes as in the file format. What the index's kind does not have is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImInfo {
    /// sizeof(ImInfo), stored by the caller.
    pub struct_bytes: u32,
    /// IM_KIND_GRAPH .. IM_KIND_LSH.
    pub kind: u32,
    /// Number of vectors, deleted ones included: vector ids are below it.
    pub n_vectors: u64,
    /// Dimensions of a query.
    pub dim: u64,
    /// Component type of stored vectors: IM_FLOAT32 .. IM_SQ8.
    pub dtype: u32,
    /// Component type that queries must have: IM_FLOAT32, IM_UINT8 or IM_INT8.
    pub query_dtype: u32,
    /// IM_METRIC_L2, IM_METRIC_IP or IM_METRIC_COSINE.
    pub metric: u32,
    /// IM_ID_NONE .. IM_ID_BINARY.
    pub id_type: u32,
    /// Graphs: most neighbours of a vertex.
    pub max_degree: u32,
    /// Graphs: vertices of the navigation graph; 0 if the index has none, so that IM_ENTRY_NAVIGATION is refused.
    pub n_navigation: u32,
    /// Inverted lists: number of lists.
    pub n_lists: u32,
    /// Hash tables: number of tables.
    pub n_tables: u32,
    /// Number of vectors that were deleted; no search returns them.
    pub n_deleted: u64,
}

// SAFETY: it is repr(C), begins with its size and consists of numbers.
unsafe impl Grows for ImInfo {
    const LEAST: usize = 56;
}

/// Fills `*out`, whose struct_bytes is set. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: `*out` is the caller's.
///
/// # Safety
/// `index` is null or open, `out` is null or as large as its struct_bytes says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_info(index: *const ImIndex, out: *mut ImInfo) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = &unsafe { borrow("im_info: index", index) }?.inner;
        // SAFETY: null or readable by the caller's contract.
        let room = unsafe { Structures::new("im_info: out", out) }?;
        let info = ImInfo {
            n_vectors: index.n_vectors().into(),
            n_deleted: index.n_deleted().into(),
            id_type: match index.ids().id_type {
                IdType::None => IM_ID_NONE,
                IdType::Int64 => IM_ID_INT64,
                IdType::Uint64 => IM_ID_UINT64,
                IdType::String => IM_ID_STRING,
                IdType::Binary => IM_ID_BINARY,
                other => unreachable!("{other:?} has no number in the header"),
            },
            ..of_kind(index)
        };
        // SAFETY: writable by the caller's contract.
        unsafe { room.write([info]) };
        Ok(0)
    })
}

/// What an index of one kind knows by its own names.
fn of_kind(index: &Opened) -> ImInfo {
    match index {
        Opened::Graph(index) => {
            let (graph, layout) = (&index.graph, index.graph.layout());
            ImInfo {
                kind: IM_KIND_GRAPH,
                max_degree: layout.max_degree as u32,
                n_navigation: index.navigation.as_ref().map_or(0, |navigation| navigation.len() as u32),
                ..of_vectors(graph.user_dim(), layout.dtype, layout.dtype.query_name(), graph.metric)
            }
        }
        Opened::Lists(index) => {
            let centroids = &index.centroids;
            ImInfo {
                kind: IM_KIND_IVF,
                n_lists: centroids.n_lists as u32,
                ..of_vectors(index.user_dim(), centroids.dtype(), index.query_dtype(), centroids.metric)
            }
        }
        Opened::Tables(index) => {
            let vectors = &index.vectors;
            ImInfo {
                kind: IM_KIND_LSH,
                n_tables: index.functions.n_tables as u32,
                ..of_vectors(index.user_dim(), vectors.dtype(), vectors.dtype().query_name(), vectors.metric)
            }
        }
    }
}

/// What the vectors are; `query_dtype` names the type of queries.
fn of_vectors(dim: usize, dtype: Dtype, query_dtype: &str, metric: Metric) -> ImInfo {
    ImInfo {
        dim: dim as u64,
        dtype: match dtype {
            Dtype::Float32 => IM_FLOAT32,
            Dtype::Float16 => IM_FLOAT16,
            Dtype::Uint8 => IM_UINT8,
            Dtype::Int8 => IM_INT8,
            Dtype::Sq16 => IM_SQ16,
            Dtype::Sq8 => IM_SQ8,
            other => unreachable!("{other:?} has no number in the header"),
        },
        query_dtype: match query_dtype {
            "uint8" => IM_UINT8,
            "int8" => IM_INT8,
            _ => IM_FLOAT32,
        },
        metric: match metric {
            Metric::L2 => IM_METRIC_L2,
            Metric::Ip => IM_METRIC_IP,
            Metric::Cosine => IM_METRIC_COSINE,
            other => unreachable!("{other:?} has no number in the header"),
        },
        ..ImInfo::default()
    }
}
