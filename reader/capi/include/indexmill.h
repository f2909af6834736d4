/* Search of indexmill indexes. docs/guides/embed.md is the introduction.
 *
 * Results: 0 or more is success, a negative number an error code; im_last_error() then tells the calling thread what
 * failed and what to do. Null and misaligned pointers, sizes and values that do not fit, and damaged files are errors.
 * Memory that is shorter than a function asks for, and objects that were released, cannot be noticed.
 *
 * Structures begin with their size, struct_bytes. Store it before a function fills a structure:
 *   ImInfo info = {.struct_bytes = sizeof info};
 * In an array, store it in the first entry. im_search_params_default stores it itself. Later libraries of this ABI
 * version may add fields at the end of structures. Programs and libraries of one ABI version work together, whichever
 * is newer: fields that a program does not know have their defaults; fields that the library does not know are 0 in
 * what it fills, and must be 0 in what it is given.
 *
 * Threads: every function may be called from any thread at any time, on the same objects too, except the five that
 * release one (im_close, im_filter_free, im_cancel_free, im_range_free, im_texts_free): no other call may use the object
 * then or later. The library never calls a function of the program.
 *
 * fork: a child may search an index of its parent if no call was running at the fork. If one was, the child may only
 * release its copies of objects, and open indexes of its own.
 *
 * Ownership: what a function stores in `*out` as a pointer belongs to the caller until it is handed to the function
 * that releases it. Arrays and texts that are passed in are borrowed for the call alone. */

#ifndef INDEXMILL_H
#define INDEXMILL_H

/* Written by cbindgen from reader/capi/src: do not edit. */

#include <stddef.h>
#include <stdint.h>

// Version of this interface: structures, codes and functions. It is raised by every change after which a program must
// be compiled again, and is the number at the end of the library's name (libindexmill.so.3).
#define IM_ABI_VERSION 3

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

// ECANCELED: the call was ended by im_cancel.
#define IM_ECANCELED -125

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

// Metric: squared Euclidean distance; smaller is better.
#define IM_METRIC_L2 1

// Metric: inner product; larger is better.
#define IM_METRIC_IP 2

// Metric: cosine; larger is better.
#define IM_METRIC_COSINE 3

// User ids: none, a vector is known by its vector id, its position in the input.
#define IM_ID_NONE 0

// User ids: signed 64 bits.
#define IM_ID_INT64 1

// User ids: unsigned 64 bits.
#define IM_ID_UINT64 2

// User ids: UTF-8 text.
#define IM_ID_STRING 3

// User ids: bytes.
#define IM_ID_BINARY 4

// Kind: a graph.
#define IM_KIND_GRAPH 1

// Kind: inverted lists.
#define IM_KIND_IVF 2

// Kind: hash tables.
#define IM_KIND_LSH 3

// Policy: lock-step beam search, one vertex a read (DiskANN++ Algorithm 1).
#define IM_POLICY_BEAM 0

// Policy: page search with a page heap (DiskANN++ Algorithm 5).
#define IM_POLICY_PAGE 1

// Policy: each read handled when it arrives (AIO-ANN Algorithm 1).
#define IM_POLICY_COMPLETION 2

// Policy: page search without a barrier between reads.
#define IM_POLICY_PIPELINE 3

// Policy: page search in as few rounds of reads as it can, for storage that takes long to answer. Libraries
// that do not know it yet refuse it.
#define IM_POLICY_ROUNDS 4

// Entry: the vertex nearest to the mean of all vectors.
#define IM_ENTRY_MEDOID 0

// Entry: the vertex of the centroid nearest to the query; under IM_POLICY_ROUNDS those of several.
#define IM_ENTRY_CENTROIDS 1

// Entry: the nearest vertices of the navigation graph; refused where the index has none.
#define IM_ENTRY_NAVIGATION 2

// Entry: the results of the query that its thread answered before (AIO-ANN); a deterministic search takes it with
// threads = inflight = 1 only.
#define IM_ENTRY_PREVIOUS 3

// Entry: IM_ENTRY_NAVIGATION where the index has a navigation graph, else IM_ENTRY_CENTROIDS.
#define IM_ENTRY_AUTO 4

// As ImSearchParams.rerank or probes: the default of the index.
#define IM_DEFAULT 4294967295

// Ends the searches that it was given to, as ImSearchParams.cancel.
typedef struct ImCancel ImCancel;

// A set of vectors, for ImSearchParams.allow.
typedef struct ImFilter ImFilter;

// An opened index.
typedef struct ImIndex ImIndex;

// What an index is; codes as in the file format. What the index's kind does not have is 0.
typedef struct ImInfo {
  // sizeof(ImInfo), stored by the caller.
  uint32_t struct_bytes;
  // IM_KIND_GRAPH .. IM_KIND_LSH.
  uint32_t kind;
  // Number of vectors, deleted ones included: vector ids are below it.
  uint64_t n_vectors;
  // Dimensions of a query.
  uint64_t dim;
  // Component type of stored vectors: IM_FLOAT32 .. IM_SQ8.
  uint32_t dtype;
  // Component type that queries must have: IM_FLOAT32, IM_UINT8 or IM_INT8.
  uint32_t query_dtype;
  // IM_METRIC_L2, IM_METRIC_IP or IM_METRIC_COSINE.
  uint32_t metric;
  // IM_ID_NONE .. IM_ID_BINARY.
  uint32_t id_type;
  // Graphs: most neighbours of a vertex.
  uint32_t max_degree;
  // Graphs: vertices of the navigation graph; 0 if the index has none, so that IM_ENTRY_NAVIGATION is refused.
  uint32_t n_navigation;
  // Inverted lists: number of lists.
  uint32_t n_lists;
  // Hash tables: number of tables.
  uint32_t n_tables;
  // Number of vectors that were deleted; no search returns them.
  uint64_t n_deleted;
} ImInfo;

// How to search. Let im_search_params_default fill it, then change what you want to. Fields of another kind of index
// are ignored, except `allow`: a filter is refused where the index is no graph.
typedef struct ImSearchParams {
  // sizeof(ImSearchParams), stored by im_search_params_default.
  uint32_t struct_bytes;
  // Answers a query, at most the number of vectors; a range search ignores it. Default 10.
  uint32_t k;
  // Graphs: candidates kept (L in messages), at least k; larger is slower and finds more. Default 64.
  uint32_t search_list_size;
  // Graphs: reads of one query in flight at most, 1 .. 64. Default 8.
  uint32_t beam_width;
  // Graphs: IM_POLICY_BEAM .. IM_POLICY_ROUNDS. Default IM_POLICY_PIPELINE.
  uint32_t policy;
  // Graphs: IM_ENTRY_MEDOID .. IM_ENTRY_AUTO. Default IM_ENTRY_AUTO.
  uint32_t entry;
  // Threads that work for the call, 1 .. 1024: the calling one and threads of the index (see im_search). While the
  // index is busy, more of its threads may take queries of the call, but at most threads x inflight of these are in
  // progress at once. Default 1.
  uint32_t threads;
  // Queries of the call that a thread interleaves at most, 1 .. 256. Default 8.
  uint32_t inflight;
  // Graphs: 1: results and counters repeat bit for bit, because reads are handled in the order in which they were
  // chosen; 0: reads are handled as they arrive, which matters under IM_POLICY_PIPELINE and with IM_ENTRY_PREVIOUS
  // only. Default 1.
  uint32_t deterministic;
  // 0.
  uint32_t reserved;
  // Graphs: the vectors that may be returned; null for all. Borrowed for the call; one filter may serve several
  // calls at once. Default null.
  const struct ImFilter *allow;
  // What may end the call early (see im_cancel); null for nothing. Borrowed for the call; one handle may serve
  // several calls at once. Default null.
  const struct ImCancel *cancel;
  // Inverted lists: lists of nearest centroids to probe; 0 for 16, or all if there are fewer. Default 0.
  uint32_t nprobe;
  // Inverted lists: candidates measured by their exact vectors, at least k, or 0 for none; IM_DEFAULT for ten
  // times k where lists hold codes and the index has exact vectors. Default IM_DEFAULT.
  uint32_t rerank;
  // Inverted lists: leave out those whose centroid is farther than 1 + this times the nearest one; below 0, leave
  // out none. Default -1.
  float prune;
  // Hash tables: further buckets of each table; IM_DEFAULT for those of the index. Default IM_DEFAULT.
  uint32_t probes;
  // Hash tables: vectors that a radius may measure; 0 for those of the index. Default 0.
  uint64_t candidates;
} ImSearchParams;

// What one query cost. Counters that the index's kind does not have are 0.
typedef struct ImCounters {
  // sizeof(ImCounters), stored by the caller: of an array, in its first entry.
  uint32_t struct_bytes;
  // 0.
  uint32_t reserved;
  // Graphs: pages of vectors and their neighbours read from disk.
  uint64_t pages_read;
  // Bytes read from disk, without those of ids.
  uint64_t bytes_read;
  // Pages of ids.imx read, from the page cache or from disk, for the ids of the answers; 0 after im_hold_ids.
  uint64_t id_pages_read;
  // Graphs: bytes of the nodes that were expanded.
  uint64_t bytes_used;
  // Graphs: rounds of frontier selection; under IM_POLICY_PIPELINE the longest chain of reads that waited for one
  // another.
  uint64_t hops;
  // Exact distances; of inverted lists, rows measured.
  uint64_t distances;
  // Graphs: distances by PQ codes.
  uint64_t code_distances;
  // Graphs: vertices with a followed neighbour list.
  uint64_t expansions;
  // Graphs: frontier vertices with a page already in memory.
  uint64_t page_heap_hits;
  // Graphs: frontier vertices with a page in the cache of hot vertices.
  uint64_t cache_hits;
  // Inverted lists: probed lists that are not empty.
  uint64_t lists;
  // Inverted lists: reads of lists.
  uint64_t list_reads;
  // Inverted lists: centroids measured.
  uint64_t centroid_distances;
  // Inverted lists: candidates measured by their exact vectors.
  uint64_t reranked;
  // Hash tables: reads of pointers.
  uint64_t table_reads;
  // Hash tables: reads of bucket blocks.
  uint64_t block_reads;
  // Hash tables: bucket blocks in them.
  uint64_t blocks;
  // Hash tables: radii searched.
  uint64_t radii;
  // Hash tables: bucket entries looked at.
  uint64_t entries;
  // Hash tables: entries with the wanted fingerprint.
  uint64_t candidates;
  // Inverted lists and hash tables: reads of vectors.
  uint64_t vector_reads;
  // Microseconds from when a thread began with the query to its answer with ids. The wait for that thread, while the
  // index is busy, is not counted.
  float latency_us;
  // Part of latency_us spent waiting for reads.
  float io_wait_us;
} ImCounters;

// Texts or bytes of user ids, one for each answer; empty where there is no answer.
typedef struct ImTexts {
  // sizeof(ImTexts) of the library.
  uint32_t struct_bytes;
  // 0.
  uint32_t reserved;
  // Number of texts.
  uint64_t n;
  // n + 1 positions: text i is at `starts[i]..starts[i + 1]` of `bytes`.
  const uint64_t *starts;
  // UTF-8 of string ids, without final zeros; the bytes of binary ids.
  const uint8_t *bytes;
} ImTexts;

// Answers to a range search; those of query q are at `starts[q]..starts[q + 1]` of `ids` and `scores`, nearest first.
typedef struct ImRangeResult {
  // sizeof(ImRangeResult) of the library.
  uint32_t struct_bytes;
  // sizeof(ImCounters) of the library: entries of `counters` are that far apart.
  uint32_t counters_bytes;
  // Number of queries.
  uint64_t n_queries;
  // n_queries + 1 positions; the last one is the number of answers.
  const uint64_t *starts;
  // As from im_search.
  const int64_t *ids;
  // As from im_search.
  const float *scores;
  // One entry a query.
  const struct ImCounters *counters;
  // User ids that are text or bytes, released with the result; null for other ids.
  const struct ImTexts *texts;
} ImRangeResult;

// Counters of all searches of an index since it was opened, and the memory that it holds now.
typedef struct ImStats {
  // sizeof(ImStats), stored by the caller.
  uint32_t struct_bytes;
  // 0.
  uint32_t reserved;
  // Queries answered by im_search, im_search_texts and im_range_search.
  uint64_t queries;
  // Graphs: pages that these read from disk.
  uint64_t pages_read;
  // Bytes that these read from disk.
  uint64_t bytes_read;
  // Pages of ids.imx that these read, from the page cache or from disk.
  uint64_t id_pages_read;
  // Graphs: frontier vertices of these whose page was taken from the cache.
  uint64_t cache_hits;
  // Calls of these that failed; their queries and reads count nowhere.
  uint64_t errors;
  // What im_open read into memory, ids after im_hold_ids, and the table of im_vector_user_id once it was made. What
  // searches use besides, such as read buffers, is not counted.
  uint64_t memory_bytes;
  // Pages kept by im_cache or im_cache_from_queries, and their directory.
  uint64_t cache_bytes;
} ImStats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns IM_ABI_VERSION of the library in use; compare it with the header's.
//
// Threads: any, at any time.
uint32_t im_abi_version(void);

// Returns the message of the last failure on the calling thread, "" if there was none: what failed, where, what was
// expected and found, and what to do. A call that succeeds leaves it as it is.
//
// Threads: any, at any time; every thread has its own message. Ownership: the library's, valid until the next call on
// this thread.
const char *im_last_error(void);

// Opens the index in directory `path` (UTF-8), of whatever kind it is, and stores it in `*out`, null on failure.
// `engine` says how pages are read: "io_uring", "pread" or another one of docs/guides/search.md; null or "auto" is
// io_uring where the system allows it, else pread; "memory" loads inverted lists or hash tables. Some parts are read
// into memory and checked at once: of a graph the codebook, entry vertices, navigation graph and, unless nodes hold
// them, the codes; of inverted lists the centroids; of hash tables the hash functions and the vectors. Everything
// else is read when it is needed. The files stay open: if the directory is replaced, this handle goes on reading
// what it opened. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: release `*out` with im_close; `path` and `engine` are copied.
//
// # Safety
// `path` and `engine` are null or zero-terminated, `out` is null or writable.
int32_t im_open(const char *path,
                const char *engine,
                struct ImIndex **out);

// Reads every byte of the index in directory `path` (UTF-8). Returns 0 if it is sound, or IM_ECORRUPT with all that
// was found, a line each, as im_last_error.
//
// Threads: any, at any time. Ownership: nothing changes hands.
//
// # Safety
// `path` is null or zero-terminated.
int32_t im_verify(const char *path);

// Ends the threads of an index and releases everything that belongs to it; null is ignored. Filters, results and
// cancel handles are objects of their own: they stay valid and are released by their own functions.
//
// Threads: any, but no other call may use the index at that time or later. Ownership: `index` is gone.
//
// # Safety
// `index` is null or comes from im_open and was not closed.
void im_close(struct ImIndex *index);

// Returns how pages are read: "io_uring", "pread" or another engine's name; null, with a message, if `index` is null.
//
// Threads: any, at any time. Ownership: the library's, valid until the index is closed.
//
// # Safety
// `index` is null or open.
const char *im_engine(const struct ImIndex *index);

// Returns why reading is not as fast as the library could make it (for example because the system forbids io_uring),
// "" if there is no reason; null, with a message, if `index` is null.
//
// Threads: any, at any time. Ownership: the library's, valid until the next im_engine_note on this thread.
//
// # Safety
// `index` is null or open.
const char *im_engine_note(const struct ImIndex *index);

// Fills `*out`, whose struct_bytes is set. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: `*out` is the caller's.
//
// # Safety
// `index` is null or open, `out` is null or as large as its struct_bytes says.
int32_t im_info(const struct ImIndex *index, struct ImInfo *out);

// Makes a handle that can end searches, and stores it in `*out`, null on failure. Give it to any number of searches,
// as ImSearchParams.cancel. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: release `*out` with im_cancel_free.
//
// # Safety
// `out` is null or writable.
int32_t im_cancel_new(struct ImCancel **out);

// Ends the searches that were given this handle: im_search, im_search_texts, im_range_search, im_cache_from_queries.
// Unless they have their answers before, they return IM_ECANCELED within about a tenth of a second, or about a
// second if the device does not answer. Searches that are given the handle later return IM_ECANCELED at once. Other
// functions, such as im_open and im_verify, cannot be cancelled. Null is ignored.
//
// Threads: any, at any time; also from a signal handler. Ownership: nothing changes hands.
//
// # Safety
// `cancel` is null or was not released.
void im_cancel(const struct ImCancel *cancel);

// Releases a handle; null is ignored.
//
// Threads: any, but no other call may use the handle at that time or later. Ownership: `cancel` is gone.
//
// # Safety
// `cancel` is null or comes from im_cancel_new and was not released.
void im_cancel_free(struct ImCancel *cancel);

// Fills `*out` with the defaults; `struct_bytes` is sizeof(ImSearchParams). Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: `*out` is the caller's.
//
// # Safety
// `out` is null or has room for `struct_bytes` bytes.
int32_t im_search_params_default(struct ImSearchParams *out,
                                 size_t struct_bytes);

// Finds the k nearest vectors of each query, nearest first.
//
// `queries` holds n_queries x dim components of type `dtype` (IM_FLOAT32, IM_UINT8 or IM_INT8, the index's
// query_dtype), row after row. `out_ids` gets n_queries x k user ids: int64, uint64 as their bit pattern, or vector
// ids where the index has none or its ids are text or bytes (see im_search_texts); -1 where fewer than k vectors
// were reachable: such an answer has NaN in `out_scores`, and no other has. `out_scores` gets n_queries x k scores
// in the index's metric. `out_counters` gets n_queries entries, or is null; struct_bytes of its first entry is set.
// Returns 0, or an error code and stores nothing.
//
// Threads: any, at any time. While fewer threads search the index than there are processors, the calling thread
// answers its queries itself, with others of the index if params->threads is above 1. Otherwise threads of the index
// answer the queries of all calls together. The index starts them when they are needed, at most as many as there are
// processors, or as the largest params->threads; they live until im_close. Ownership: all arrays are the caller's.
//
// # Safety
// `index` is null or open, `params` is null or as large as its struct_bytes says, the arrays have the sizes above.
int32_t im_search(const struct ImIndex *index,
                  const void *queries,
                  uint32_t dtype,
                  size_t n_queries,
                  size_t dim,
                  const struct ImSearchParams *params,
                  int64_t *out_ids,
                  float *out_scores,
                  struct ImCounters *out_counters);

// Graphs: finds for each query the vectors with a score at least as good as `radius`: at most this squared distance
// (l2), at least this inner product or cosine. Queries and parameters are those of im_search; params->k is ignored.
// The search begins with params->search_list_size candidates and keeps more while many are within the radius. Stores
// the answers in `*out`, null on failure. Returns 0 or an error code.
//
// Threads: any, at any time, as im_search. Ownership: release `*out` with im_range_free.
//
// # Safety
// `index` is null or open, `params` is null or as large as its struct_bytes says, `queries` has n_queries x dim
// components, `out` is null or writable.
int32_t im_range_search(const struct ImIndex *index,
                        const void *queries,
                        uint32_t dtype,
                        size_t n_queries,
                        size_t dim,
                        float radius,
                        const struct ImSearchParams *params,
                        struct ImRangeResult **out);

// Releases the answers of a range search; null is ignored.
//
// Threads: any, but no other call may use the result at that time or later. Ownership: `result` and its arrays are
// gone.
//
// # Safety
// `result` is null or comes from im_range_search and was not released.
void im_range_free(struct ImRangeResult *result);

// Stores the vector ids of `n` integer user ids (uint64 as their bit pattern; vector ids where the index has no user
// ids) in `out_vector_ids`, -1 for ids that no vector has, or none that is left. Reads the ids of the index once, up to the last one that is found, however many are
// looked up: ask for many at a time. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: the arrays are the caller's.
//
// # Safety
// `index` is null or open, `ids` and `out_vector_ids` have `n` entries.
int32_t im_find_ids(const struct ImIndex *index,
                    const int64_t *ids,
                    size_t n,
                    int64_t *out_vector_ids);

// The same for ids that are text or bytes: id i is at `starts[i]..starts[i + 1]` of `bytes`.
//
// Threads: any, at any time. Ownership: the arrays are the caller's.
//
// # Safety
// `index` is null or open, `starts` has `n` + 1 entries, `bytes` as many as the last one says, `out_vector_ids` `n`.
int32_t im_find_texts(const struct ImIndex *index,
                      const uint64_t *starts,
                      const uint8_t *bytes,
                      size_t n,
                      int64_t *out_vector_ids);

// Reads all ids into memory, where they stay until the index is closed, so that searches read no page of ids.imx.
// Takes 4 bytes a vector, 8 more where there are user ids, and the bytes of texts. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: the ids belong to the index.
//
// # Safety
// `index` is null or open.
int32_t im_hold_ids(const struct ImIndex *index);

// Copies the user id of a vector id to `buffer` and returns its length in bytes, or a negative error code. A text is
// UTF-8 without a final zero. An integer id has 8 bytes, the lowest first, and so has the vector id where there are
// no user ids. At most `capacity` bytes are written: if the result is above `capacity`, call again with a larger
// buffer. `buffer` may be null if `capacity` is 0. The first call on a graph makes a table of 4 bytes a vector;
// im_search_texts returns the texts of answers without it.
//
// Threads: any, at any time. Ownership: `buffer` is the caller's.
//
// # Safety
// `index` is null or open, `buffer` has room for `capacity` bytes.
int64_t im_vector_user_id(const struct ImIndex *index,
                          uint64_t vector_id,
                          void *buffer,
                          size_t capacity);

// The same as im_search for an index whose user ids are text or bytes: stores n_queries x k of them in `*out_texts`,
// null on failure. They are read with the vectors, without a table in memory. `out_vector_ids` gets n_queries x k
// vector ids, -1 where there is no answer, or is null. Returns 0 or an error code.
//
// Threads: any, at any time, as im_search. Ownership: release `*out_texts` with im_texts_free; the other arrays are
// the caller's.
//
// # Safety
// `index` is null or open, `params` is null or as large as its struct_bytes says, `out_texts` is null or writable,
// the arrays have the sizes above.
int32_t im_search_texts(const struct ImIndex *index,
                        const void *queries,
                        uint32_t dtype,
                        size_t n_queries,
                        size_t dim,
                        const struct ImSearchParams *params,
                        struct ImTexts **out_texts,
                        int64_t *out_vector_ids,
                        float *out_scores,
                        struct ImCounters *out_counters);

// Releases texts; null is ignored. Those of a range search belong to it.
//
// Threads: any, but no other call may use the texts at that time or later. Ownership: `texts` and its arrays are gone.
//
// # Safety
// `texts` is null or comes from im_search_texts and was not released.
void im_texts_free(struct ImTexts *texts);

// Graphs: makes a filter from a bitmap over vector ids (positions in the input), and stores it in `*out`, null on
// failure. Vector `id` is bit `id % 8` of byte `id / 8`, where bit 0 has the value 1; `n_bytes` is n_vectors / 8,
// rounded up. Deleted vectors stay out. The filter serves all handles of the same generation of the index, even after
// this one was closed. Making it reads 4 bytes a vector, so make it once and use it often; it takes n_vectors / 8
// bytes. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: release `*out` with im_filter_free; `bitmap` is copied.
//
// # Safety
// `index` is null or open, `bitmap` is null or has `n_bytes` bytes, `out` is null or writable.
int32_t im_filter_new(const struct ImIndex *index,
                      const uint8_t *bitmap,
                      size_t n_bytes,
                      struct ImFilter **out);

// Returns the number of vectors that may be returned, or a negative error code.
//
// Threads: any, at any time. Ownership: nothing changes hands.
//
// # Safety
// `filter` is null or alive.
int64_t im_filter_count(const struct ImFilter *filter);

// Releases a filter; null is ignored.
//
// Threads: any, but no other call may use the filter at that time or later. Ownership: `filter` is gone.
//
// # Safety
// `filter` is null or comes from im_filter_new and was not released.
void im_filter_free(struct ImFilter *filter);

// Graphs: caches the pages that a breadth-first walk from the entry vertices meets first, for all later searches.
// The cache takes at most `bytes` bytes of memory and replaces the one there was; 0 drops that. Returns 0 or an
// error code; after an error the old cache stays.
//
// Threads: any, at any time; running searches keep the cache that they began with; of two calls at once the one that
// ends last wins. Ownership: the cache belongs to the index.
//
// # Safety
// `index` is null or open.
int32_t im_cache(const struct ImIndex *index,
                 uint64_t bytes);

// Graphs: the same with the pages that a search for a sample of queries reads most often. Queries and parameters are
// those of im_search; this search counts in no ImStats.
//
// Threads: any, at any time, as im_cache. Ownership: the cache belongs to the index, `queries` is the caller's.
//
// # Safety
// `index` is null or open, `params` is null or as large as its struct_bytes says, `queries` has n_queries x dim
// components.
int32_t im_cache_from_queries(const struct ImIndex *index,
                              const void *queries,
                              uint32_t dtype,
                              size_t n_queries,
                              size_t dim,
                              const struct ImSearchParams *params,
                              uint64_t bytes);

// Fills `*out`, whose struct_bytes is set. A search that ends at the same time may be counted in some of the sums
// and not yet in others. Returns 0 or an error code.
//
// Threads: any, at any time. Ownership: `*out` is the caller's.
//
// # Safety
// `index` is null or open, `out` is null or as large as its struct_bytes says.
int32_t im_stats(const struct ImIndex *index,
                 struct ImStats *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* INDEXMILL_H */
