/* Search of indexmill indexes.
 *
 * Functions return 0 or more on success and a negative errno-like code on failure; im_last_error() then tells the
 * calling thread what failed and what to do. An ImIndex may be used from several threads at once; only im_close
 * must not run while another call uses the index. */

#ifndef INDEXMILL_H
#define INDEXMILL_H

/* Written by cbindgen from reader/capi/src: do not edit. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Version of this interface: structures, codes and functions.
#define IM_ABI_VERSION 1

// EINVAL: a pointer is null, or a parameter or query is unusable.
#define IM_EINVAL -22

// EIO: the operating system refused to read.
#define IM_EIO -5

// ENOENT: not an index of ours.
#define IM_EFOREIGN -2

// EBADF: damaged bytes.
#define IM_ECORRUPT -9

// EOPNOTSUPP: written in a format version that this library does not read.
#define IM_EVERSION -95

// EFAULT: a defect of this library.
#define IM_EPANIC -14

// Component type: IEEE binary32; float16, sq16 and sq8 indexes take such queries, too.
#define IM_FLOAT32 1

// Component type: IEEE binary16 (indexes only).
#define IM_FLOAT16 2

// Component type: unsigned bytes.
#define IM_UINT8 3

// Component type: signed bytes.
#define IM_INT8 4

// Component type: 16-bit codes of scaled floats (indexes only).
#define IM_SQ16 5

// Component type: 8-bit codes of scaled floats (indexes only).
#define IM_SQ8 6

// Policy: lock-step beam search.
#define IM_POLICY_BEAM 0

// Policy: page search.
#define IM_POLICY_PAGE 1

// Entry: the vertex nearest to the mean of all vectors.
#define IM_ENTRY_MEDOID 0

// Entry: the vertex of the centroid nearest to the query.
#define IM_ENTRY_CENTROIDS 1

// An opened index.
typedef struct ImIndex ImIndex;

// What an index is; codes as in the file format.
typedef struct ImInfo {
  // Number of vectors.
  uint64_t n_vertices;
  // Dimensions of a query.
  uint64_t dim;
  // Component type of stored vectors: IM_FLOAT32 .. IM_SQ8.
  uint32_t dtype;
  // Component type that queries must have: IM_FLOAT32, IM_UINT8 or IM_INT8.
  uint32_t query_dtype;
  // 1 l2, 2 inner product, 3 cosine.
  uint32_t metric;
  // 0 none, 1 int64, 2 uint64, 3 string, 4 binary.
  uint32_t id_type;
  // Most neighbours of a vertex.
  uint32_t max_degree;
  // 1 if reads go through io_uring, 0 if not.
  uint32_t uses_io_uring;
} ImInfo;

// How to search. 10, 64, 4, IM_POLICY_PAGE, IM_ENTRY_CENTROIDS, 1, 8 is a good start.
typedef struct ImSearchParams {
  // Answers a query.
  uint32_t k;
  // Candidates kept, at least k; larger is slower and finds more.
  uint32_t search_list_size;
  // Reads of one query in flight, 1 .. 64.
  uint32_t beam_width;
  // IM_POLICY_BEAM or IM_POLICY_PAGE.
  uint32_t policy;
  // IM_ENTRY_MEDOID or IM_ENTRY_CENTROIDS.
  uint32_t entry;
  // Search threads, 1 .. 1024.
  uint32_t threads;
  // Queries that each thread interleaves, 1 .. 256.
  uint32_t inflight;
} ImSearchParams;

// What one query cost.
typedef struct ImCounters {
  // Pages read from disk.
  uint64_t pages_read;
  // Bytes read from disk.
  uint64_t bytes_read;
  // Bytes of the nodes that were expanded.
  uint64_t bytes_used;
  // Rounds of frontier selection.
  uint64_t hops;
  // Exact distances.
  uint64_t distances;
  // Distances by PQ codes.
  uint64_t code_distances;
  // Vertices whose neighbour lists were followed.
  uint64_t expansions;
  // Frontier vertices whose page was there already.
  uint64_t page_heap_hits;
  // Frontier vertices whose page was taken from the cache of hot vertices.
  uint64_t cache_hits;
  // From start to end.
  float latency_us;
  // Part of it spent waiting for reads.
  float io_wait_us;
} ImCounters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns IM_ABI_VERSION of the library in use; compare it with the header's. Thread-safe.
uint32_t im_abi_version(void);

// Returns the message of the last failure on the calling thread, "" if there was none. Valid until the next call
// on this thread; do not free it. Thread-safe: every thread has its own.
const char *im_last_error(void);

// Copies the user id of a vector id to `buffer` and returns its length in bytes: the text (UTF-8, no final zero) or
// bytes of string and binary ids, the 8 little-endian bytes of integer ids and of the vector id where there are no
// user ids. At most `capacity` bytes are written; a result above `capacity` asks for a larger buffer, which may be
// null if `capacity` is 0. The first call on an index reads all vector ids and keeps 4 bytes a vector. Returns a
// negative error code on failure. Thread-safe.
//
// # Safety
// `index` is null or open, `buffer` has room for `capacity` bytes.
int64_t im_vector_user_id(const struct ImIndex *index,
                          uint64_t vector_id,
                          void *buffer,
                          size_t capacity);

// Opens the index in directory `path` (UTF-8); `engine` is "auto", "io_uring", "sqpoll", "pread", "mmap", "simulated:"
// and the path of a device profile, or null for "auto". Stores the index in `*out`, to be released with im_close; null on failure. Returns 0 or an error code. Thread-safe.
//
// # Safety
// `path` and `engine` are null or zero-terminated, `out` is null or writable.
int32_t im_open(const char *path,
                const char *engine,
                struct ImIndex **out);

// Reads every byte of the index in directory `path` (UTF-8). Returns 0 if it is sound, or IM_ECORRUPT with all that
// was found, a line each, as im_last_error. Thread-safe.
//
// # Safety
// `path` is null or zero-terminated.
int32_t im_verify(const char *path);

// Releases an index; null is ignored. Must not run while another call uses the index.
//
// # Safety
// `index` is null or comes from im_open and was not closed.
void im_close(struct ImIndex *index);

// Fills `*out`. Returns 0 or an error code. Thread-safe.
//
// # Safety
// `index` is null or open, `out` is null or writable.
int32_t im_info(const struct ImIndex *index, struct ImInfo *out);

// Finds the k nearest vectors of each query, nearest first.
//
// `queries` holds n_queries x dim components of type `dtype` (IM_FLOAT32, IM_UINT8 or IM_INT8, the index's
// query_dtype), row after row. `out_ids` gets n_queries x k user ids: int64, uint64 as their bit pattern, or vector
// ids where the index has none or its ids are text or bytes (see im_vector_user_id); -1 where fewer than k vectors
// were reachable, which the NaN in `out_scores` tells from an id. `out_scores` gets n_queries x k scores in the
// index's metric. `out_counters` gets n_queries entries, or is null. Returns 0 or an error code. Thread-safe.
//
// # Safety
// `index` is null or open, `params` is null or readable, the arrays have the sizes above.
int32_t im_search(const struct ImIndex *index,
                  const void *queries,
                  uint32_t dtype,
                  size_t n_queries,
                  size_t dim,
                  const struct ImSearchParams *params,
                  int64_t *out_ids,
                  float *out_scores,
                  struct ImCounters *out_counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* INDEXMILL_H */
