/* Searches an index from C.
 *
 *   search INDEX [QUERIES [K [L]]]
 *
 * INDEX    an index directory
 * QUERIES  a file of raw query vectors, row after row, in the index's query type; without it one random vector
 *
 * Prints user ids, scores and what each query cost.
 *
 *   cargo build --release -p indexmill-capi                       (in reader/)
 *   cp reader/target/release/libindexmill.so libindexmill.so.0 && ln -sf libindexmill.so.0 libindexmill.so
 *   cc -I reader/capi/include reader/capi/examples/search.c -L. -Wl,-rpath,. -lindexmill -o search
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "indexmill.h"

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, im_last_error());
    return 1;
}

static size_t component_bytes(uint32_t dtype) { return dtype == IM_FLOAT32 ? sizeof(float) : 1; }

/* Reads all whole vectors of a file; the caller frees the result. */
static void *read_queries(const char *path, size_t vector_bytes, size_t *n_queries) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    size_t room = 1024, n = 0, got;
    char *data = malloc(room * vector_bytes);
    while (data && (got = fread(data + n * vector_bytes, vector_bytes, room - n, file)) > 0) {
        n += got;
        if (n == room) {
            char *larger = realloc(data, 2 * room * vector_bytes);
            if (!larger) break;
            data = larger;
            room *= 2;
        }
    }
    fclose(file);
    *n_queries = n;
    return data;
}

static void *random_query(const ImInfo *info) {
    size_t n = (size_t)info->dim;
    void *query = malloc(n * component_bytes(info->query_dtype));
    for (size_t i = 0; query && i < n; i++) {
        int value = rand() % 128;
        if (info->query_dtype == IM_FLOAT32) ((float *)query)[i] = (float)value / 64.0f - 1.0f;
        else ((char *)query)[i] = (char)value;
    }
    return query;
}

static void print_id(const ImIndex *index, const ImInfo *info, int64_t id) {
    char text[256];
    if (info->id_type < 3) {
        if (info->id_type == 2) printf(" %" PRIu64, (uint64_t)id);
        else printf(" %" PRId64, id);
        return;
    }
    int64_t length = im_vector_user_id(index, (uint64_t)id, text, sizeof text);
    if (length < 0) printf(" (%s)", im_last_error());
    else printf(" %.*s", (int)(length < (int64_t)sizeof text ? length : (int64_t)sizeof text), text);
}

int main(int argc, char **argv) {
    if (argc < 2 || im_abi_version() != IM_ABI_VERSION) {
        fprintf(stderr, "usage: %s INDEX [QUERIES [K [L]]]   (library ABI %" PRIu32 ")\n", argv[0], im_abi_version());
        return 2;
    }
    ImIndex *index = NULL;
    ImInfo info;
    if (im_open(argv[1], "auto", &index) < 0) return fail("open");
    if (im_info(index, &info) < 0) return fail("info");
    printf("%" PRIu64 " vectors of %" PRIu64 " dimensions\n", info.n_vertices, info.dim);

    size_t n = 1, bytes = (size_t)info.dim * component_bytes(info.query_dtype);
    void *queries = argc > 2 ? read_queries(argv[2], bytes, &n) : random_query(&info);
    ImSearchParams params = {10, 64, 4, IM_POLICY_PAGE, IM_ENTRY_CENTROIDS, 1, 8};
    if (argc > 3) params.k = (uint32_t)atoi(argv[3]);
    if (params.k > info.n_vertices) params.k = (uint32_t)info.n_vertices;
    if (argc > 4) params.search_list_size = (uint32_t)atoi(argv[4]);
    int64_t *ids = malloc((n * params.k + 1) * sizeof *ids);
    float *scores = malloc((n * params.k + 1) * sizeof *scores);
    ImCounters *counters = malloc((n + 1) * sizeof *counters);
    if (!queries || !ids || !scores || !counters) {
        fprintf(stderr, "cannot read the queries or no memory\n");
        return 1;
    }
    if (im_search(index, queries, info.query_dtype, n, (size_t)info.dim, &params, ids, scores, counters) < 0)
        return fail("search");
    for (size_t q = 0; q < n; q++) {
        printf("query %zu:", q);
        for (size_t i = q * params.k; i < (q + 1) * params.k; i++) {
            if (scores[i] != scores[i]) break; /* NaN: fewer than k were reachable */
            print_id(index, &info, ids[i]);
            printf(" (%g)", scores[i]);
        }
        printf("; %" PRIu64 " pages, %" PRIu64 " hops, %.0f us\n", counters[q].pages_read, counters[q].hops,
               counters[q].latency_us);
    }
    free(queries);
    free(ids);
    free(scores);
    free(counters);
    im_close(index);
    return 0;
}
