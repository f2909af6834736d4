//! Opening, describing and closing an index.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::sync::OnceLock;

use indexmill_core::graph::{Dtype, Metric};
use indexmill_core::ids::IdType;
use indexmill_core::{Error, Index};

use crate::error::{Failure, guard};

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

/// An opened index.
pub struct ImIndex {
    pub(crate) inner: Index,
    /// Slot of each vector id, made by the first im_vector_user_id.
    pub(crate) slots: OnceLock<Vec<u32>>,
}

/// What an index is; codes as in the file format.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImInfo {
    /// Number of vectors.
    pub n_vertices: u64,
    /// Dimensions of a query.
    pub dim: u64,
    /// Component type of stored vectors: IM_FLOAT32 .. IM_SQ8.
    pub dtype: u32,
    /// Component type that queries must have: IM_FLOAT32, IM_UINT8 or IM_INT8.
    pub query_dtype: u32,
    /// 1 l2, 2 inner product, 3 cosine.
    pub metric: u32,
    /// 0 none, 1 int64, 2 uint64, 3 string, 4 binary.
    pub id_type: u32,
    /// Most neighbours of a vertex.
    pub max_degree: u32,
    /// 1 if reads go through io_uring, 0 if not.
    pub uses_io_uring: u32,
}

/// Opens the index in directory `path` (UTF-8); `engine` is "auto", "io_uring", "sqpoll", "pread", "mmap", "simulated:"
/// and the path of a device profile, or null for "auto". Stores the index in `*out`, to be released with im_close; null on failure. Returns 0 or an error code. Thread-safe.
///
/// # Safety
/// `path` and `engine` are null or zero-terminated, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_open(path: *const c_char, engine: *const c_char, out: *mut *mut ImIndex) -> i32 {
    let opened = guard(|| {
        if path.is_null() || out.is_null() {
            return Err(Failure::invalid("im_open: path and out must not be null"));
        }
        let text = |pointer: *const c_char| {
            // SAFETY: zero-terminated by the caller's contract.
            unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Failure::invalid("im_open: expected UTF-8 text"))
        };
        // SAFETY: writable by the caller's contract.
        unsafe { *out = std::ptr::null_mut() };
        let engine = if engine.is_null() { "auto" } else { text(engine)? };
        let inner = Index::open(Path::new(text(path)?), engine)?;
        // SAFETY: writable by the caller's contract.
        unsafe { *out = Box::into_raw(Box::new(ImIndex { inner, slots: OnceLock::new() })) };
        Ok(0)
    });
    opened as i32
}

/// Reads every byte of the index in directory `path` (UTF-8). Returns 0 if it is sound, or IM_ECORRUPT with all that
/// was found, a line each, as im_last_error. Thread-safe.
///
/// # Safety
/// `path` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_verify(path: *const c_char) -> i32 {
    let verified = guard(|| {
        if path.is_null() {
            return Err(Failure::invalid("im_verify: path must not be null"));
        }
        // SAFETY: zero-terminated by the caller's contract.
        let path = unsafe { CStr::from_ptr(path) }.to_str();
        let path = path.map_err(|_| Failure::invalid("im_verify: expected UTF-8 text"))?;
        let damages = indexmill_core::verify::verify(Path::new(path));
        if damages.is_empty() { Ok(0) } else { Err(Error::Corrupt(damages.join("\n")).into()) }
    });
    verified as i32
}

/// Releases an index; null is ignored. Must not run while another call uses the index.
///
/// # Safety
/// `index` is null or comes from im_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_close(index: *mut ImIndex) {
    guard(|| {
        if !index.is_null() {
            // SAFETY: made by Box::into_raw in im_open, closed once.
            drop(unsafe { Box::from_raw(index) });
        }
        Ok(0)
    });
}

/// Fills `*out`. Returns 0 or an error code. Thread-safe.
///
/// # Safety
/// `index` is null or open, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_info(index: *const ImIndex, out: *mut ImInfo) -> i32 {
    let described = guard(|| {
        // SAFETY: null or valid by the caller's contract.
        let (Some(index), Some(out)) = (unsafe { index.as_ref() }, unsafe { out.as_mut() }) else {
            return Err(Failure::invalid("im_info: index and out must not be null"));
        };
        let (graph, layout) = (&index.inner.graph, &index.inner.graph.layout);
        *out = ImInfo {
            n_vertices: layout.n_vertices.into(),
            dim: graph.user_dim() as u64,
            dtype: dtype_code(layout.dtype),
            query_dtype: match layout.dtype {
                Dtype::Uint8 => IM_UINT8,
                Dtype::Int8 => IM_INT8,
                _ => IM_FLOAT32,
            },
            metric: match graph.metric {
                Metric::L2 => 1,
                Metric::Ip => 2,
                Metric::Cosine => 3,
            },
            id_type: match index.inner.ids.id_type {
                IdType::None => 0,
                IdType::Int64 => 1,
                IdType::Uint64 => 2,
                IdType::String => 3,
                IdType::Binary => 4,
            },
            max_degree: layout.max_degree as u32,
            uses_io_uring: u32::from(matches!(index.inner.engine.name(), "io_uring" | "sqpoll")),
        };
        Ok(0)
    });
    described as i32
}

fn dtype_code(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Float32 => IM_FLOAT32,
        Dtype::Float16 => IM_FLOAT16,
        Dtype::Uint8 => IM_UINT8,
        Dtype::Int8 => IM_INT8,
        Dtype::Sq16 => IM_SQ16,
        Dtype::Sq8 => IM_SQ8,
    }
}
