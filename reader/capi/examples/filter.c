/* Filter, range search, cache and statistics from C.
 *
 *   filter INDEX QUERY RADIUS
 *
 * QUERY   a file that begins with one raw query vector in the index's query type
 * RADIUS  a squared distance (l2), an inner product or a cosine
 *
 * Prints what is within RADIUS of the query, of the vectors with an even vector id. Compiled as search.c is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "indexmill.h"

/* A filter that lets even vector ids pass; null on failure. */
static ImFilter *even_ids(const ImIndex *index, uint64_t n_vectors) {
    size_t n_bytes = (size_t)(n_vectors + 7) / 8;
    uint8_t *bitmap = calloc(n_bytes, 1);
    ImFilter *filter = NULL;
    for (uint64_t id = 0; bitmap && id < n_vectors; id += 2) bitmap[id / 8] |= (uint8_t)(1u << (id % 8));
    if (bitmap) im_filter_new(index, bitmap, n_bytes, &filter); /* stores null where it fails */
    free(bitmap);
    return filter;
}

/* Everything after opening; what it makes is released by the caller. */
static int run(const ImIndex *index, const char *path, float radius, void **query, ImFilter **filter,
               ImRangeResult **result) {
    ImInfo info = {.struct_bytes = sizeof info};
    ImSearchParams params;
    ImStats stats = {.struct_bytes = sizeof stats};
    if (im_info(index, &info) < 0 || im_search_params_default(&params, sizeof params) < 0) return -1;
    size_t n_bytes = (size_t)info.dim * (info.query_dtype == IM_FLOAT32 ? sizeof(float) : 1);
    FILE *file = fopen(path, "rb");
    *query = malloc(n_bytes);
    size_t got = file && *query ? fread(*query, 1, n_bytes, file) : 0;
    if (file) fclose(file);
    if (got != n_bytes) {
        fprintf(stderr, "%s: expected %zu bytes, got %zu\n", path, n_bytes, got);
        return -1;
    }
    if (im_cache(index, 1 << 20) < 0 || !(*filter = even_ids(index, info.n_vectors))) return -1;
    params.allow = *filter;
    if (im_range_search(index, *query, info.query_dtype, 1, (size_t)info.dim, radius, &params, result) < 0) return -1;
    for (uint64_t i = 0; i < (*result)->starts[1]; i++)
        printf("%" PRId64 " (%g)\n", (*result)->ids[i], (double)(*result)->scores[i]);
    if (im_stats(index, &stats) < 0) return -1;
    printf("%" PRIu64 " of %" PRId64 " allowed vectors; %" PRIu64 " pages read, %" PRIu64 " cache hits, %" PRIu64
           " KiB cached\n", (*result)->starts[1], im_filter_count(*filter), stats.pages_read, stats.cache_hits,
           stats.cache_bytes / 1024);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4 || im_abi_version() != IM_ABI_VERSION) {
        fprintf(stderr, "usage: %s INDEX QUERY RADIUS   (library ABI %" PRIu32 ")\n", argv[0], im_abi_version());
        return 2;
    }
    ImIndex *index = NULL;
    ImFilter *filter = NULL;
    ImRangeResult *result = NULL;
    void *query = NULL;
    int code = im_open(argv[1], NULL, &index);
    if (code == 0) code = run(index, argv[2], strtof(argv[3], NULL), &query, &filter, &result);
    if (code < 0) fprintf(stderr, "%s\n", im_last_error());
    im_range_free(result); /* null is ignored */
    im_filter_free(filter);
    im_close(index);
    free(query);
    return code < 0;
}
