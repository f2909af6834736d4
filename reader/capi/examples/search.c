/* Searches an index from C.
 *
 *   search INDEX [QUERIES [NAME=VALUE ...]]
 *
 * INDEX    an index directory, of any kind
 * QUERIES  a file of raw query vectors, row after row, in the index's query type; without it one random vector
 * NAME     k, threads, inflight; L, W (beam width), policy for graphs; nprobe, rerank for inverted lists; probes for hash
 *          tables: see ImSearchParams;
 *          skip: bytes to skip at the start of QUERIES (8 for .u8bin, .i8bin and .fbin files)
 *
 * Prints user ids, scores and what each query cost, then what the process and the index took.
 *
 *   make install-library PREFIX=$HOME/.local      (docs/guides/embed.md)
 *   cc -std=c11 reader/capi/examples/search.c $(pkg-config --cflags --libs indexmill) -o search
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

/* Sets one parameter from "NAME=VALUE"; 0 if there is no such name or value. */
static int set(ImSearchParams *params, uint32_t *skip, const char *option) {
    static const char *policies[] = {"beam", "page", "completion", "pipeline", "rounds"}; /* IM_POLICY_BEAM .. */
    const struct {
        const char *name;
        uint32_t *value;
    } numbers[] = {{"k=", &params->k},           {"L=", &params->search_list_size}, {"W=", &params->beam_width},
                   {"threads=", &params->threads}, {"inflight=", &params->inflight},  {"nprobe=", &params->nprobe},
                   {"rerank=", &params->rerank},   {"probes=", &params->probes},      {"skip=", skip}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t length = strlen(numbers[i].name);
        if (strncmp(option, numbers[i].name, length) == 0)
            return sscanf(option + length, "%" SCNu32, numbers[i].value) == 1;
    }
    for (uint32_t i = 0; strncmp(option, "policy=", 7) == 0 && i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(option + 7, policies[i]) == 0) {
            params->policy = i;
            return 1;
        }
    }
    return 0;
}

/* Reads all whole vectors of a file; the caller frees the result. */
static void *read_queries(const char *path, size_t skip, size_t vector_bytes, size_t *n_queries) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    size_t room = 1024, n = 0, got;
    char *data = fseek(file, (long)skip, SEEK_SET) == 0 ? malloc(room * vector_bytes) : NULL;
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

static int has_texts(const ImInfo *info) { return info->id_type == IM_ID_STRING || info->id_type == IM_ID_BINARY; }

/* Prints the user id of answer i: a text, or a number. */
static void print_id(const ImInfo *info, const ImTexts *texts, const int64_t *ids, size_t i) {
    if (has_texts(info))
        printf(" %.*s", (int)(texts->starts[i + 1] - texts->starts[i]), (const char *)texts->bytes + texts->starts[i]);
    else if (info->id_type == IM_ID_UINT64) printf(" %" PRIu64, (uint64_t)ids[i]);
    else printf(" %" PRId64, ids[i]);
}

/* What the process took at most (Linux tells), and what of it the index holds. */
static int print_memory(const ImIndex *index) {
    char line[256];
    long peak_kib = -1;
    ImStats stats = {.struct_bytes = sizeof stats};
    if (im_stats(index, &stats) < 0) return fail("stats");
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak_kib);
    if (status) fclose(status);
    if (peak_kib >= 0) printf("peak memory: %.1f MiB; ", (double)peak_kib / 1024);
    printf("the index holds %.1f MiB\n", (double)(stats.memory_bytes + stats.cache_bytes) / (1 << 20));
    return 0;
}

static int run(const ImIndex *index, const ImInfo *info, const ImSearchParams *params, const void *queries, size_t n) {
    int64_t *ids = malloc((n * params->k + 1) * sizeof *ids);
    float *scores = malloc((n * params->k + 1) * sizeof *scores);
    ImCounters *counters = malloc((n + 1) * sizeof *counters);
    ImTexts *texts = NULL;
    uint32_t dtype = info->query_dtype;
    size_t dim = (size_t)info->dim;
    int code = 1;
    if (counters) counters->struct_bytes = sizeof *counters;
    if (!queries || !ids || !scores || !counters) {
        fprintf(stderr, "cannot read the queries or no memory\n");
    } else if ((has_texts(info) ? im_search_texts(index, queries, dtype, n, dim, params, &texts, NULL, scores, counters)
                                : im_search(index, queries, dtype, n, dim, params, ids, scores, counters)) < 0) {
        fail("search");
    } else {
        for (size_t q = 0; q < n; q++) {
            printf("query %zu:", q);
            for (size_t i = q * params->k; i < (q + 1) * params->k; i++) {
                if (scores[i] != scores[i]) break; /* NaN: fewer than k were reachable */
                print_id(info, texts, ids, i);
                printf(" (%g)", (double)scores[i]);
            }
            if (info->kind == IM_KIND_GRAPH)
                printf("; %" PRIu64 " pages, %" PRIu64 " hops", counters[q].pages_read, counters[q].hops);
            else printf("; %" PRIu64 " bytes", counters[q].bytes_read);
            printf(", %.0f us\n", (double)counters[q].latency_us);
        }
        code = print_memory(index);
    }
    im_texts_free(texts); /* null is ignored */
    free(ids);
    free(scores);
    free(counters);
    return code;
}

int main(int argc, char **argv) {
    ImSearchParams params;
    uint32_t skip = 0;
    int valid = argc >= 2 && im_search_params_default(&params, sizeof params) == 0;
    for (int i = 3; valid && i < argc; i++) valid = set(&params, &skip, argv[i]);
    if (!valid) {
        fprintf(stderr, "usage: %s INDEX [QUERIES [k=10] [L=64] [W=8] [policy=pipeline] [threads=1] [inflight=8]"
                " [nprobe=16] [rerank] [probes] [skip=0]]"
                "\n(library ABI %" PRIu32 ") %s\n", argv[0], im_abi_version(), im_last_error());
        return 2;
    }
    ImIndex *index = NULL;
    ImInfo info = {.struct_bytes = sizeof info};
    if (im_open(argv[1], "auto", &index) < 0) return fail("open");
    if (im_info(index, &info) < 0) return fail("info");
    printf("%" PRIu64 " vectors of %" PRIu64 " dimensions, read with %s\n", info.n_vectors, info.dim, im_engine(index));

    size_t n = 1, bytes = (size_t)info.dim * component_bytes(info.query_dtype);
    if (params.k > info.n_vectors) params.k = (uint32_t)info.n_vectors;
    void *queries = argc > 2 ? read_queries(argv[2], skip, bytes, &n) : random_query(&info);
    int code = run(index, &info, &params, queries, n);
    free(queries);
    im_close(index);
    return code;
}
