/* Every function's ways to fail, and that a failure leaves the caller's memory as it was or null.
 *
 *   errors INDEX DAMAGED OTHER ON_PAGE QUERIES LISTS TABLES
 *
 * INDEX has a navigation graph, 200 float32 vectors of 16 dimensions and string ids; DAMAGED is a copy of it with a byte
 * of graph.imx flipped; OTHER is another build, of uint8 vectors, without navigation graph; ON_PAGE is one whose nodes
 * hold the codes of their neighbours, of vectors as long as those of INDEX. QUERIES are vectors of INDEX. LISTS and
 * TABLES are an index of inverted lists and one of hash tables, both of float32 vectors.
 */
#include <math.h>

#include "check.h"

enum { N = 200, DIM = 16, K = 10, N_QUERIES = 3 };
/* Of the cache: a page and its entry in the directory. */
enum { BLOCK = 4096 + 8 };

static ImIndex *index_, *other;
static float *queries;
static int64_t ids[N_QUERIES * K];
static float scores[N_QUERIES * K];
static ImSearchParams good;

/* Searches with all arguments but these as they should be. */
static int32_t with(const ImSearchParams *params) {
    return im_search(index_, queries, IM_FLOAT32, N_QUERIES, DIM, params, ids, scores, NULL);
}

static int32_t shaped(const void *values, uint32_t dtype, size_t n, size_t dim) {
    return im_search(index_, values, dtype, n, dim, &good, ids, scores, NULL);
}

static void opening(const char *path, const char *damaged) {
    ImIndex *opened = (ImIndex *)&good;
    FAILS(IM_EINVAL, "im_open: out: expected a pointer, got null", im_open(path, NULL, NULL));
    FAILS(IM_EINVAL, "im_open: path: expected a pointer, got null", im_open(NULL, NULL, &opened));
    CHECK(opened == NULL);
    FAILS(IM_EINVAL, "im_open: path: expected UTF-8", im_open("\xff", NULL, &opened));
    FAILS(IM_EINVAL, "im_open: engine: expected UTF-8", im_open(path, "\xff", &opened));
    FAILS(IM_EINVAL, "engine: expected", im_open(path, "tape", &opened));
    opened = (ImIndex *)&good;
    FAILS(IM_EFOREIGN, "manifest.json", im_open("/nowhere", NULL, &opened));
    CHECK(opened == NULL);
    FAILS(IM_EINVAL, "im_verify: path", im_verify(NULL));
    FAILS(IM_ECORRUPT, "graph.imx", im_verify(damaged));
    CHECK(im_verify(path) == 0);
    im_close(NULL);
}

static void describing(void) {
    ImInfo info = {.struct_bytes = sizeof info};
    ImStats stats = {.struct_bytes = sizeof stats};
    FAILS(IM_EINVAL, "im_info: index", im_info(NULL, &info));
    FAILS(IM_EINVAL, "im_info: out", im_info(index_, NULL));
    FAILS(IM_EINVAL, "im_stats: index", im_stats(NULL, &stats));
    FAILS(IM_EINVAL, "im_stats: out", im_stats(index_, NULL));
    CHECK(im_engine(NULL) == NULL && strstr(im_last_error(), "im_engine: index"));
    CHECK(im_engine_note(NULL) == NULL && strstr(im_last_error(), "im_engine_note: index"));
    CHECK(strcmp(im_engine(index_), "pread") == 0 && im_engine_note(index_) != NULL);
    CHECK(im_info(index_, &info) == 0 && info.kind == IM_KIND_GRAPH && info.n_vectors == N && info.dim == DIM && info.dtype == IM_FLOAT32);
    CHECK(info.query_dtype == IM_FLOAT32 && info.metric == IM_METRIC_L2 && info.id_type == IM_ID_STRING);
    CHECK(info.n_navigation > 0 && im_info(other, &info) == 0 && info.n_navigation == 0);
    CHECK(info.struct_bytes == sizeof info && info.n_lists == 0 && info.n_tables == 0 && info.n_deleted == 0);
    /* A program that was compiled before n_deleted finds what is behind its structure as it was. */
    info.struct_bytes = offsetof(ImInfo, n_deleted);
    info.n_deleted = 7;
    CHECK(im_info(index_, &info) == 0 && info.n_vectors == N && info.n_deleted == 7);
    info.struct_bytes -= 8;
    FAILS(IM_EINVAL, "im_info: out: struct_bytes: expected", im_info(index_, &info));
    stats.struct_bytes = 0;
    FAILS(IM_EINVAL, "im_stats: out: struct_bytes: expected", im_stats(index_, &stats));
    /* A program that knows more fields than the library finds them 0, and those behind its structure as they were. */
    struct {
        ImInfo known;
        uint64_t later[2], behind;
    } larger;
    memset(&larger, '#', sizeof larger);
    larger.known.struct_bytes = sizeof larger - sizeof larger.behind;
    CHECK(im_info(index_, &larger.known) == 0 && larger.known.n_vectors == N && larger.later[0] == 0);
    CHECK(larger.later[1] == 0 && larger.behind == 0x2323232323232323);
}

/* A program that knows more fields than the library searches with it as long as it leaves them 0. */
static void newer_parameters(void) {
    struct {
        ImSearchParams known;
        uint64_t later, behind;
    } newer;
    memset(&newer, '#', sizeof newer);
    CHECK(im_search_params_default(&newer.known, sizeof newer - sizeof newer.behind) == 0);
    CHECK(newer.known.struct_bytes == sizeof newer - sizeof newer.behind && newer.known.candidates == good.candidates);
    CHECK(newer.known.k == K && newer.later == 0 && newer.behind == 0x2323232323232323);
    CHECK(with(&newer.known) == 0);
    newer.later = (uint64_t)5 << 32;
    FAILS(IM_EINVAL, "params: byte 84: expected 0 behind the 80 bytes that this library knows, got 5",
          with(&newer.known));
}

static void parameters(void) {
    ImSearchParams p;
    memset(&p, 7, sizeof p);
    FAILS(IM_EINVAL, "im_search_params_default: out", im_search_params_default(NULL, sizeof p));
    FAILS(IM_EINVAL, "default: out: struct_bytes: expected", im_search_params_default(&p, sizeof p - 8));
    FAILS(IM_EINVAL, "got 1099511627776", im_search_params_default(&p, (size_t)1 << 40));
    CHECK(p.k == 0x07070707);
    FAILS(IM_EINVAL, "params: struct_bytes: expected", with(&p));
    p = good, p.struct_bytes -= 8;
    FAILS(IM_EINVAL, "params: struct_bytes: expected a multiple of 8 from 80 to 4096, got 72", with(&p));
    newer_parameters();
    FAILS(IM_EINVAL, "params: expected a pointer, got null", with(NULL));
#define REFUSED(field, wrong, text) p = good, p.field = (wrong); FAILS(IM_EINVAL, text, with(&p))
    REFUSED(k, 0, "k: expected at least 1");
    REFUSED(k, N + 1, "k: the index has 200 vectors, got 201");
    REFUSED(search_list_size, K - 1, "L: expected at least k = 10, got 9");
    REFUSED(beam_width, 0, "beam_width");
    REFUSED(beam_width, 65, "beam_width");
    REFUSED(threads, 0, "threads");
    REFUSED(threads, 1025, "threads");
    REFUSED(inflight, 0, "inflight");
    REFUSED(inflight, UINT32_MAX, "inflight");
    REFUSED(policy, IM_POLICY_ROUNDS + 1, "params: policy: expected");
    REFUSED(entry, IM_ENTRY_AUTO + 1, "params: entry: expected");
    REFUSED(deterministic, 2, "params: deterministic: expected 0 or 1");
    REFUSED(reserved, 1, "params: reserved: expected 0, got 1");
    REFUSED(entry, IM_ENTRY_PREVIOUS, "threads = 1 and inflight = 1");
    p = good, p.entry = IM_ENTRY_NAVIGATION;
    uint8_t bytes[DIM] = {1};
    FAILS(IM_EINVAL, "no navigation graph", im_search(other, bytes, IM_UINT8, 1, DIM, &p, ids, scores, NULL));
}

static void searching(void) {
    float bad[DIM] = {NAN};
    FAILS(IM_EINVAL, "im_search: index", im_search(NULL, queries, IM_FLOAT32, 1, DIM, &good, ids, scores, NULL));
    FAILS(IM_EINVAL, "queries: expected a pointer, got null", shaped(NULL, IM_FLOAT32, 1, DIM));
    FAILS(IM_EINVAL, "multiple of 4", shaped((char *)queries + 1, IM_FLOAT32, 1, DIM));
    FAILS(IM_EINVAL, "dtype: expected IM_FLOAT32", shaped(queries, IM_FLOAT16, 1, DIM));
    FAILS(IM_EINVAL, "dtype: expected IM_FLOAT32", shaped(queries, 0, 1, DIM));
    FAILS(IM_EINVAL, "queries: expected float32 components, got uint8", shaped(queries, IM_UINT8, 1, DIM));
    FAILS(IM_EINVAL, "expected 16 dimensions, got 15", shaped(queries, IM_FLOAT32, 1, DIM - 1));
    FAILS(IM_EINVAL, "expected 16 dimensions, got 0", shaped(queries, IM_FLOAT32, 1, 0));
    FAILS(IM_EINVAL, "check the sizes", shaped(queries, IM_FLOAT32, SIZE_MAX / DIM, DIM));
    FAILS(IM_EINVAL, "check the sizes", shaped(queries, IM_FLOAT32, SIZE_MAX, DIM));
    FAILS(IM_EINVAL, "row 0: expected finite", shaped(bad, IM_FLOAT32, 1, DIM));
    FAILS(IM_EINVAL, "out_ids", im_search(index_, queries, IM_FLOAT32, 1, DIM, &good, NULL, scores, NULL));
    FAILS(IM_EINVAL, "out_scores", im_search(index_, queries, IM_FLOAT32, 1, DIM, &good, ids, NULL, NULL));
    ImCounters counters[2] = {{.struct_bytes = sizeof *counters - 1}};
    FAILS(IM_EINVAL, "im_search: out_counters: struct_bytes: expected",
          im_search(index_, queries, IM_FLOAT32, 2, DIM, &good, ids, scores, counters));
    counters->struct_bytes = sizeof *counters;
    CHECK(im_search(index_, queries, IM_FLOAT32, 2, DIM, &good, ids, scores, counters) == 0);
    CHECK(counters[0].pages_read > 0 && counters[1].pages_read > 0 && counters[1].struct_bytes == sizeof *counters);
    ImTexts *texts = (ImTexts *)&good;
    uint8_t bytes[DIM] = {1};
    FAILS(IM_EINVAL, "im_search_texts: index",
          im_search_texts(NULL, queries, IM_FLOAT32, 1, DIM, &good, &texts, NULL, scores, NULL));
    CHECK(texts == NULL);
    texts = (ImTexts *)&good;
    FAILS(IM_EINVAL, "has no text ids; call im_search",
          im_search_texts(other, bytes, IM_UINT8, 1, DIM, &good, &texts, NULL, scores, NULL));
    CHECK(texts == NULL);
    FAILS(IM_EINVAL, "im_search_texts: out_texts",
          im_search_texts(index_, queries, IM_FLOAT32, 1, DIM, &good, NULL, NULL, scores, NULL));
    FAILS(IM_EINVAL, "im_search_texts: out_scores",
          im_search_texts(index_, queries, IM_FLOAT32, 1, DIM, &good, &texts, NULL, NULL, NULL));
    CHECK(im_search_texts(index_, NULL, IM_FLOAT32, 0, DIM, &good, &texts, NULL, NULL, NULL) == 0);
    CHECK(texts->n == 0 && texts->starts[0] == 0);
    im_texts_free(texts);
    im_texts_free(NULL);
    FAILS(IM_EINVAL, "im_hold_ids: index", im_hold_ids(NULL));
    CHECK(im_search(index_, NULL, IM_FLOAT32, 0, DIM, &good, NULL, NULL, NULL) == 0);
}

static void within_a_radius(void) {
    ImRangeResult *result = (ImRangeResult *)&good;
#define RANGE(index, radius, params, out) \
    im_range_search(index, queries, IM_FLOAT32, N_QUERIES, DIM, radius, params, out)
    FAILS(IM_EINVAL, "im_range_search: out", RANGE(index_, 1, &good, NULL));
    FAILS(IM_EINVAL, "im_range_search: index", RANGE(NULL, 1, &good, &result));
    CHECK(result == NULL);
    result = (ImRangeResult *)&good;
    FAILS(IM_EINVAL, "radius: expected a number, got NaN", RANGE(index_, NAN, &good, &result));
    CHECK(result == NULL);
    FAILS(IM_EINVAL, "expected a pointer", RANGE(index_, 1, NULL, &result));
    FAILS(IM_EINVAL, "float32 components", im_range_search(index_, queries, IM_INT8, 1, DIM, 1, &good, &result));
    CHECK(RANGE(index_, -1, &good, &result) == 0 && result->n_queries == N_QUERIES);
    CHECK(result->starts[0] == 0 && result->starts[N_QUERIES] == 0);
    im_range_free(result);
    CHECK(im_range_search(index_, NULL, IM_FLOAT32, 0, DIM, 1, &good, &result) == 0 && result->starts[0] == 0);
    im_range_free(result);
    im_range_free(NULL);
}

static void filtering(void) {
    uint8_t bitmap[N / 8] = {1, 0, 1};
    ImFilter *filter = (ImFilter *)&good;
    ImSearchParams p = good;
    FAILS(IM_EINVAL, "im_filter_new: out", im_filter_new(index_, bitmap, sizeof bitmap, NULL));
    FAILS(IM_EINVAL, "im_filter_new: index", im_filter_new(NULL, bitmap, sizeof bitmap, &filter));
    CHECK(filter == NULL);
    FAILS(IM_EINVAL, "im_filter_new: bitmap", im_filter_new(index_, NULL, sizeof bitmap, &filter));
    FAILS(IM_EINVAL, "expected 25 bytes", im_filter_new(index_, bitmap, sizeof bitmap - 1, &filter));
    FAILS(IM_EINVAL, "expected 25 bytes", im_filter_new(index_, NULL, 0, &filter));
    FAILS(IM_EINVAL, "im_filter_count: filter", im_filter_count(NULL));
    CHECK(im_filter_new(index_, bitmap, sizeof bitmap, &filter) == 0 && im_filter_count(filter) == 2);
    p.allow = filter;
    CHECK(with(&p) == 0 && ids[0] != ids[1] && (ids[0] | ids[1]) == 16 && ids[2] == -1 && isnan(scores[2]));
    uint8_t bytes[DIM] = {1};
    FAILS(IM_EINVAL, "another build", im_search(other, bytes, IM_UINT8, 1, DIM, &p, ids, scores, NULL));
    im_filter_free(filter);
    im_filter_free(NULL);
}

static void caching(void) {
    ImStats stats = {.struct_bytes = sizeof stats};
#define TRAIN(index, values, params) im_cache_from_queries(index, values, IM_FLOAT32, N_QUERIES, DIM, params, 4 * BLOCK)
    FAILS(IM_EINVAL, "im_cache: index", im_cache(NULL, 1 << 20));
    FAILS(IM_EINVAL, "im_cache_from_queries: index", TRAIN(NULL, queries, &good));
    CHECK(im_cache(index_, 3 * BLOCK - 1) == 0);
    FAILS(IM_EINVAL, "queries: expected a pointer", TRAIN(index_, NULL, &good));
    FAILS(IM_EINVAL, "expected a pointer", TRAIN(index_, queries, NULL));
    CHECK(im_stats(index_, &stats) == 0 && stats.cache_bytes == 2 * BLOCK); /* the failures left it */
    CHECK(TRAIN(index_, queries, &good) == 0 && im_stats(index_, &stats) == 0 && stats.cache_bytes == 4 * BLOCK);
    CHECK(im_cache(index_, UINT64_MAX) == 0 && with(&good) == 0);
    CHECK(im_cache(index_, 0) == 0 && im_stats(index_, &stats) == 0 && stats.cache_bytes == 0);
}

/* Texts that a search found are those that their vector ids lead to. */
static void check_texts(const ImTexts *texts, const int64_t *vector_ids, size_t n) {
    char whole[64];
    CHECK(texts->n == n && texts->starts[0] == 0);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *text = texts->bytes + texts->starts[i];
        int64_t length = im_vector_user_id(index_, (uint64_t)vector_ids[i], whole, sizeof whole);
        CHECK(length == (int64_t)(texts->starts[i + 1] - texts->starts[i]) && memcmp(text, whole, (size_t)length) == 0);
    }
}

static void looking_up(void) {
    char text[8], whole[64];
    ImTexts *texts = NULL;
    ImRangeResult *result = NULL;
    ImStats before = {.struct_bytes = sizeof before}, after = before;
    ImCounters counters[N_QUERIES] = {{.struct_bytes = sizeof *counters}};
    CHECK(im_stats(index_, &before) == 0);
    CHECK(im_search_texts(index_, queries, IM_FLOAT32, N_QUERIES, DIM, &good, &texts, ids, scores, counters) == 0);
    CHECK(im_range_search(index_, queries, IM_FLOAT32, N_QUERIES, DIM, 1e6f, &good, &result) == 0);
    int64_t again[N_QUERIES * K], number = 5;
    CHECK(im_find_texts(index_, texts->starts, texts->bytes, N_QUERIES * K, again) == 0);
    CHECK(memcmp(again, ids, sizeof again) == 0);
    uint64_t starts[] = {1, 5, 5};
    CHECK(im_find_texts(index_, starts, (const uint8_t *)"?nosuch", 2, again) == 0 && again[0] == -1 && again[1] >= 0);
    FAILS(IM_EINVAL, "ids are of type string, got ids of type int64", im_find_ids(index_, &number, 1, again));
    FAILS(IM_EINVAL, "ids are of type int64, got ids of type string",
          im_find_texts(other, starts, (const uint8_t *)"?nosuch", 2, again));
    CHECK(im_find_ids(other, &number, 1, again) == 0 && again[0] == -1 && im_find_ids(other, NULL, 0, NULL) == 0);
    FAILS(IM_EINVAL, "im_find_ids: index", im_find_ids(NULL, &number, 1, again));
    FAILS(IM_EINVAL, "im_find_ids: ids", im_find_ids(other, NULL, 1, again));
    FAILS(IM_EINVAL, "im_find_ids: out_vector_ids", im_find_ids(other, &number, 1, NULL));
    FAILS(IM_EINVAL, "im_find_texts: starts", im_find_texts(index_, NULL, NULL, 0, NULL));
    FAILS(IM_EINVAL, "im_find_texts: bytes", im_find_texts(index_, starts, NULL, 2, again));
    starts[0] = 6;
    FAILS(IM_EINVAL, "expected ascending, got 6 at 0 and 5", im_find_texts(index_, starts, texts->bytes, 2, again));
    CHECK(im_stats(index_, &after) == 0 && after.memory_bytes == before.memory_bytes); /* no table was made */
    CHECK(counters[0].id_pages_read > 0 && result->starts[N_QUERIES] > 0);
    check_texts(texts, ids, N_QUERIES * K);
    check_texts(result->texts, result->ids, result->starts[N_QUERIES]);
    im_texts_free(texts);
    im_range_free(result);
    memset(text, '#', sizeof text);
    int64_t length = im_vector_user_id(index_, 3, whole, sizeof whole);
    CHECK(length > 4 && length < (int64_t)sizeof whole);
    CHECK(im_vector_user_id(index_, 3, text, 4) == length && memcmp(text, whole, 4) == 0 && text[4] == '#');
    CHECK(im_vector_user_id(index_, 3, NULL, 0) == length);
    FAILS(IM_EINVAL, "im_vector_user_id: index", im_vector_user_id(NULL, 3, text, 4));
    FAILS(IM_EINVAL, "im_vector_user_id: buffer", im_vector_user_id(index_, 3, NULL, 4));
    FAILS(IM_EINVAL, "expected 0..199, got 200", im_vector_user_id(index_, N, text, 4));
    FAILS(IM_EINVAL, "expected 0..199", im_vector_user_id(index_, UINT64_MAX, text, 4));
    CHECK(im_stats(index_, &before) == 0 && im_hold_ids(index_) == 0 && im_stats(index_, &after) == 0);
    CHECK(after.memory_bytes - before.memory_bytes >= N * 12); /* a vector id, an offset and the text */
    CHECK(im_search(index_, queries, IM_FLOAT32, N_QUERIES, DIM, &good, ids, scores, counters) == 0);
    CHECK(counters[0].id_pages_read == 0 && counters[0].pages_read > 0);
    CHECK(im_stats(index_, &before) == 0 && before.id_pages_read == after.id_pages_read);
}

/* An index with codes in its nodes starts at a centroid; entries that are ranked by codes in memory are refused. */
static void codes_in_nodes(const char *path) {
    ImIndex *opened = NULL;
    ImSearchParams p = good;
    CHECK(im_open(path, "pread", &opened) == 0 && p.entry == IM_ENTRY_AUTO);
    CHECK(im_search(opened, queries, IM_FLOAT32, N_QUERIES, DIM, &p, ids, scores, NULL) == 0 && ids[K - 1] >= 0);
    p.threads = p.inflight = 1;
    uint32_t refused[] = {IM_ENTRY_PREVIOUS, IM_ENTRY_NAVIGATION};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        p.entry = refused[i];
        FAILS(IM_EINVAL, "has its codes in the nodes, not in memory",
              im_search(opened, queries, IM_FLOAT32, 1, DIM, &p, ids, scores, NULL));
    }
    im_close(opened);
}

/* Sums are those of the searches that succeeded; failures are counted apart. */
static void counting(const char *damaged) {
    ImStats before = {.struct_bytes = sizeof before}, after = before;
    ImCounters counters[N_QUERIES] = {{.struct_bytes = sizeof *counters}};
    ImSearchParams p = good;
    CHECK(im_stats(index_, &before) == 0 && before.errors > 0);
    CHECK(im_search(index_, queries, IM_FLOAT32, N_QUERIES, DIM, &good, ids, scores, counters) == 0);
    p.k = 0;
    FAILS(IM_EINVAL, "k:", with(&p));
    CHECK(im_stats(index_, &after) == 0 && after.queries == before.queries + N_QUERIES);
    uint64_t pages = counters[0].pages_read + counters[1].pages_read + counters[2].pages_read;
    CHECK(pages > 0 && after.pages_read == before.pages_read + pages);
    CHECK(after.bytes_read == before.bytes_read + 4096 * pages && after.errors == before.errors + 1);
    CHECK(after.memory_bytes > 4 * N);
    ImIndex *sick = NULL;
    CHECK(im_open(damaged, "pread", &sick) == 0 && im_cache(sick, 0) == 0);
    p = good, p.k = p.search_list_size = N;
    ids[0] = -77;
    FAILS(IM_ECORRUPT, "graph.imx: page", im_search(sick, queries, IM_FLOAT32, 1, DIM, &p, ids, scores, NULL));
    CHECK(ids[0] == -77 && im_stats(sick, &after) == 0 && after.queries == 0 && after.errors == 1);
    FAILS(IM_ECORRUPT, "graph.imx: page", im_cache(sick, UINT64_MAX));
    im_close(sick);
}

/* What graphs alone have is refused of other kinds, with one message. */
static void of_another_kind(const char *path, const char *refused) {
    uint8_t bitmap[N / 8] = {1};
    ImIndex *opened = NULL;
    ImInfo info = {.struct_bytes = sizeof info};
    ImFilter *filter = NULL;
    ImRangeResult *result = NULL;
    ImSearchParams p = good;
    CHECK(im_open(path, NULL, &opened) == 0 && im_info(opened, &info) == 0 && info.kind != IM_KIND_GRAPH);
    float *query = calloc((size_t)info.dim, sizeof *query);
    CHECK(query && im_search(opened, query, IM_FLOAT32, 1, (size_t)info.dim, &p, ids, scores, NULL) == 0);
    FAILS(IM_EINVAL, refused, im_filter_new(opened, bitmap, sizeof bitmap, &filter));
    FAILS(IM_EINVAL, refused, im_cache(opened, 1 << 20));
    FAILS(IM_EINVAL, refused, im_cache_from_queries(opened, query, IM_FLOAT32, 1, (size_t)info.dim, &p, 1 << 20));
    FAILS(IM_EINVAL, refused, im_range_search(opened, query, IM_FLOAT32, 1, (size_t)info.dim, 1, &p, &result));
    CHECK(im_filter_new(index_, bitmap, sizeof bitmap, &filter) == 0);
    p.allow = filter;
    FAILS(IM_EINVAL, refused, im_search(opened, query, IM_FLOAT32, 1, (size_t)info.dim, &p, ids, scores, NULL));
    CHECK(strncmp(im_last_error(), "params: allow: ", 15) == 0);
    im_filter_free(filter);
    im_close(opened);
    free(query);
}

int main(int argc, char **argv) {
    CHECK(argc == 8 && im_abi_version() == IM_ABI_VERSION);
    CHECK(strcmp(im_last_error(), "") == 0);
    size_t n_bytes;
    queries = read_file(argv[5], &n_bytes);
    CHECK(n_bytes == N_QUERIES * DIM * sizeof(float));
    CHECK(im_open(argv[1], "pread", &index_) == 0 && im_open(argv[3], "pread", &other) == 0);
    CHECK(im_search_params_default(&good, sizeof good) == 0 && good.struct_bytes == sizeof good && good.k == K);
    opening(argv[1], argv[2]);
    describing();
    parameters();
    searching();
    within_a_radius();
    filtering();
    caching();
    looking_up();
    codes_in_nodes(argv[4]);
    counting(argv[2]);
    of_another_kind(argv[6], "expected an index of kind \"graph\", got one of kind \"ivf\"");
    of_another_kind(argv[7], "expected an index of kind \"graph\", got one of kind \"lsh\"");
    im_close(index_);
    im_close(other);
    free(queries);
    return 0;
}
