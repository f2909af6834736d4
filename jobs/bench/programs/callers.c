/* Queries a second of 64 threads that search one query at a time, and of one thread whose calls have 64, in turns.
 *
 *   callers INDEX QUERIES [NAME=VALUE ...]
 *
 * QUERIES  raw query vectors in the index's query type, row after row, 64 or more of 16 .. 4096 bytes
 * NAME     rounds, seconds (of each measurement), skip (bytes at the start of QUERIES); k, L, W, policy,
 *          threads and inflight of the calls with 64 queries: see ImSearchParams
 *
 * Prints a line a round: queries a second, and processor time a query in microseconds.
 */
#define _GNU_SOURCE /* barriers, clocks */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"

enum { CALLERS = 64, MOST_K = 100 };

static ImIndex *shared;
static ImSearchParams params;
static uint32_t dtype;
static size_t dim, n_queries, vector_bytes;
static char *queries;
static atomic_size_t next_query;
static atomic_bool is_over;
static pthread_barrier_t begin;

static void check(int32_t code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, im_last_error());
        exit(1);
    }
}

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Searches `n` queries from one of all on, in a block, until it is over; returns how many were answered. */
static size_t ask(size_t n, const ImSearchParams *how) {
    static _Thread_local int64_t ids[CALLERS * MOST_K];
    static _Thread_local float scores[CALLERS * MOST_K];
    size_t answered = 0;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        size_t first = atomic_fetch_add(&next_query, n) % (n_queries - n + 1);
        check(im_search(shared, queries + first * vector_bytes, dtype, n, dim, how, ids, scores, NULL), "search");
        answered += n;
    }
    return answered;
}

static void *caller(void *answered) {
    ImSearchParams how = params;
    how.threads = 1;
    pthread_barrier_wait(&begin);
    *(size_t *)answered = ask(1, &how);
    return NULL;
}

static void *batches(void *answered) {
    pthread_barrier_wait(&begin);
    *(size_t *)answered = ask(CALLERS, &params);
    return NULL;
}

/* Queries a second, and processor microseconds of each, of `n` threads. */
static void measure(void *(*body)(void *), size_t n, double seconds, double *rate, double *cpu_us) {
    pthread_t threads[CALLERS];
    size_t answered[CALLERS], sum = 0;
    atomic_store(&is_over, false);
    pthread_barrier_init(&begin, NULL, (unsigned)n + 1);
    for (size_t i = 0; i < n; i++) check(-pthread_create(&threads[i], NULL, body, &answered[i]), "pthread_create");
    pthread_barrier_wait(&begin);
    double start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        sum += answered[i];
    }
    *rate = (double)sum / (now(CLOCK_MONOTONIC) - start);
    *cpu_us = 1e6 * (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)sum;
    pthread_barrier_destroy(&begin);
}

static int set(const char *word, uint32_t *rounds, uint32_t *skip, double *seconds) {
    return set_search(word, &params) || set_number(word, "rounds=", rounds) || set_number(word, "skip=", skip)
           || sscanf(word, "seconds=%lf", seconds) == 1;
}

int main(int argc, char **argv) {
    uint32_t rounds = 5, skip = 0;
    double seconds = 3;
    check(im_search_params_default(&params, sizeof params), "parameters");
    int valid = argc >= 3;
    for (int i = 3; valid && i < argc; i++) valid = set(argv[i], &rounds, &skip, &seconds);
    FILE *file = valid ? fopen(argv[2], "rb") : NULL;
    if (!file || params.k > MOST_K) {
        fprintf(stderr, "usage: %s INDEX QUERIES [rounds=5] [seconds=3] [skip=0] [k=10] [L=64] [W=8] [policy=pipeline]"
                " [threads=1] [inflight=8]\n", argv[0]);
        return 2;
    }
    check(im_open(argv[1], "auto", &shared), "open");
    ImInfo info = {.struct_bytes = sizeof info};
    check(im_info(shared, &info), "info");
    dtype = info.query_dtype, dim = (size_t)info.dim, vector_bytes = dim * (dtype == IM_FLOAT32 ? sizeof(float) : 1);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file) - skip;
    fseek(file, (long)skip, SEEK_SET);
    queries = malloc(bytes);
    n_queries = queries ? fread(queries, 1, bytes, file) / vector_bytes : 0;
    fclose(file);
    if (n_queries < CALLERS) return fprintf(stderr, "%s: expected %d queries or more\n", argv[2], CALLERS), 1;
    for (uint32_t round = 0; round <= rounds; round++) {
        double batch, batch_cpu, one, one_cpu;
        measure(batches, 1, seconds, &batch, &batch_cpu);
        measure(caller, CALLERS, seconds, &one, &one_cpu);
        if (round > 0) /* the first warms up */
            printf("round %" PRIu32 ": batch=%.1f callers=%.1f batch_cpu_us=%.1f callers_cpu_us=%.1f\n", round, batch, one,
                   batch_cpu, one_cpu);
    }
    im_close(shared);
    free(queries);
    return 0;
}
