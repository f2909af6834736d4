/* How long an index takes to open, and what resident memory it adds, opened and searched.
 *
 *   opening INDEX QUERIES [NAME=VALUE ...]
 *
 * QUERIES  raw query vectors in the index's query type, row after row
 * NAME     rounds (that are timed, after one that warms up), skip (bytes at the start of QUERIES); k, L, W, policy,
 *          threads and inflight: see ImSearchParams
 *
 * Prints bytes: VmRSS before im_open, after it, after a search of all queries and after another one (results left out),
 * and the index's memory_bytes; and then a line a round, milliseconds. Memory comes first, since rounds leave some behind.
 */
#define _GNU_SOURCE /* clocks */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"

static ImSearchParams params;

static void check(int32_t code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, im_last_error());
        exit(1);
    }
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static uint64_t resident_bytes(void) {
    FILE *file = fopen("/proc/self/status", "r");
    uint64_t kib = 0;
    for (char line[256]; file && fgets(line, sizeof line, file);) {
        if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib << 10;
}

static int set(const char *word, uint32_t *rounds, uint32_t *skip) {
    return set_search(word, &params) || set_number(word, "rounds=", rounds) || set_number(word, "skip=", skip);
}

/* Reads all queries before memory is looked at. */
static char *read_queries(FILE *file, uint32_t skip, size_t *bytes) {
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file) - skip;
    fseek(file, (long)skip, SEEK_SET);
    char *queries = malloc(*bytes);
    *bytes = queries ? fread(queries, 1, *bytes, file) : 0;
    fclose(file);
    return queries;
}

int main(int argc, char **argv) {
    uint32_t rounds = 20, skip = 0;
    check(im_search_params_default(&params, sizeof params), "parameters");
    int valid = argc >= 3;
    for (int i = 3; valid && i < argc; i++) valid = set(argv[i], &rounds, &skip);
    FILE *file = valid ? fopen(argv[2], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: %s INDEX QUERIES [rounds=20] [skip=0] [k=10] [L=64] [W=8] [policy=pipeline] [threads=1]"
                " [inflight=8]\n", argv[0]);
        return 2;
    }
    size_t bytes;
    char *queries = read_queries(file, skip, &bytes);
    ImIndex *index;
    ImInfo info = {.struct_bytes = sizeof info};
    uint64_t before = resident_bytes();
    check(im_open(argv[1], "auto", &index), "open");
    uint64_t opened = resident_bytes();
    check(im_info(index, &info), "info");
    size_t vector_bytes = (size_t)info.dim * (info.query_dtype == IM_FLOAT32 ? sizeof(float) : 1);
    size_t n = bytes / vector_bytes;
    int64_t *ids = calloc(n * params.k + 1, sizeof *ids);
    float *scores = calloc(n * params.k + 1, sizeof *scores);
    if (n == 0 || !ids || !scores) return fprintf(stderr, "%s: no queries\n", argv[2]), 1;
    /* Resident before the search. */
    memset(ids, 1, n * params.k * sizeof *ids);
    memset(scores, 1, n * params.k * sizeof *scores);
    uint64_t results = resident_bytes() - opened;
    uint64_t searched[2];
    for (size_t i = 0; i < 2; i++) {
        check(im_search(index, queries, info.query_dtype, n, (size_t)info.dim, &params, ids, scores, NULL), "search");
        searched[i] = resident_bytes() - results;
    }
    ImStats stats = {.struct_bytes = sizeof stats};
    check(im_stats(index, &stats), "stats");
    printf("bytes: before=%" PRIu64 " opened=%" PRIu64 " searched=%" PRIu64 " again=%" PRIu64 " memory_bytes=%" PRIu64 "\n",
           before, opened, searched[0], searched[1], stats.memory_bytes);
    im_close(index);
    for (uint32_t round = 0; round <= rounds; round++) {
        double start = now_ms();
        check(im_open(argv[1], "auto", &index), "open");
        double done = now_ms();
        im_close(index);
        if (round > 0) printf("round %" PRIu32 ": open_ms=%.3f\n", round, done - start);
    }
    free(queries);
    free(ids);
    free(scores);
    return 0;
}
