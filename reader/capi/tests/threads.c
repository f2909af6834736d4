/* Threads search one index at once, each with parameters of its own, and get what they get alone; meanwhile others fill
 * and drop the cache, make filters, look ids up, read statistics, and open and close handles of their own.
 *
 *   threads INDEX QUERIES ENGINE
 *
 * INDEX has float32 vectors, at least 64 of them, of 16 dimensions; QUERIES holds such vectors.
 */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <pthread.h>

#include "check.h"

enum { DIM = 16, SEARCHERS = 8, ROUNDS = 6 };

static const char *path, *engine;
static ImIndex *shared;
static ImInfo info = {.struct_bytes = sizeof info};
static const float *queries;
static size_t n_queries;
static ImFilter *every_third;
static pthread_barrier_t start;

typedef struct {
    ImSearchParams params;
    float radius;
    int64_t *ids;
    float *scores;
    ImRangeResult *within;
} Job;

static void search(const Job *job, int64_t *ids, float *scores) {
    CHECK(im_search(shared, queries, IM_FLOAT32, n_queries, DIM, &job->params, ids, scores, NULL) == 0);
}

static ImRangeResult *search_range(const Job *job) {
    ImRangeResult *out;
    CHECK(im_range_search(shared, queries, IM_FLOAT32, n_queries, DIM, job->radius, &job->params, &out) == 0);
    return out;
}

/* Parameters of the i-th thread, and its answers while nothing else runs. */
static void prepare(Job *job, uint32_t i) {
    CHECK(im_search_params_default(&job->params, sizeof job->params) == 0);
    job->params.policy = i % 4;
    job->params.entry = i < 4 ? IM_ENTRY_AUTO : IM_ENTRY_CENTROIDS;
    job->params.k = 1 + i;
    job->params.search_list_size = 20 + 5 * i;
    job->params.beam_width = 1 + i;
    job->params.threads = 1 + i % 3;
    job->params.inflight = 1 + i;
    job->params.allow = i % 2 ? every_third : NULL;
    job->radius = 20 + (float)i;
    size_t n = n_queries * job->params.k;
    job->ids = malloc(n * sizeof *job->ids);
    job->scores = malloc(n * sizeof *job->scores);
    CHECK(job->ids && job->scores);
    search(job, job->ids, job->scores);
    job->within = search_range(job);
    CHECK(job->within->starts[n_queries] > 0);
}

static void *searcher(void *argument) {
    const Job *job = argument;
    size_t n = n_queries * job->params.k;
    int64_t *ids = malloc(n * sizeof *ids);
    float *scores = malloc(n * sizeof *scores);
    CHECK(ids && scores);
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        search(job, ids, scores);
        CHECK(memcmp(ids, job->ids, n * sizeof *ids) == 0 && memcmp(scores, job->scores, n * sizeof *scores) == 0);
        ImRangeResult *within = search_range(job);
        size_t bytes = (n_queries + 1) * sizeof *within->starts;
        CHECK(memcmp(within->starts, job->within->starts, bytes) == 0);
        bytes = within->starts[n_queries] * sizeof *within->ids;
        CHECK(memcmp(within->ids, job->within->ids, bytes) == 0);
        im_range_free(within);
    }
    free(ids);
    free(scores);
    return NULL;
}

static ImFilter *make_filter(void) {
    size_t n_bytes = (size_t)(info.n_vectors + 7) / 8;
    uint8_t *bitmap = calloc(n_bytes, 1);
    ImFilter *filter;
    CHECK(bitmap);
    for (uint64_t id = 0; id < info.n_vectors; id += 3) bitmap[id / 8] |= (uint8_t)(1u << (id % 8));
    CHECK(im_filter_new(shared, bitmap, n_bytes, &filter) == 0);
    free(bitmap);
    return filter;
}

/* Its failures leave messages on this thread alone. */
static void *meddler(void *unused) {
    ImStats stats = {.struct_bytes = sizeof stats}, last;
    (void)unused;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        last = stats;
        CHECK(im_cache(shared, round % 2 ? 0 : 1 << 16) == 0);
        CHECK(im_stats(shared, &stats) == 0 && stats.queries >= last.queries && stats.pages_read >= last.pages_read);
        ImFilter *filter = make_filter();
        CHECK(im_filter_count(filter) == im_filter_count(every_third));
        im_filter_free(filter);
        CHECK(im_vector_user_id(shared, (uint64_t)round, NULL, 0) > 0);
        FAILS(IM_EINVAL, "im_open: path", im_open(NULL, NULL, &(ImIndex *){NULL}));
        ImIndex *own = NULL;
        CHECK(im_open(path, engine, &own) == 0);
        im_close(own);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    path = argv[1], engine = argv[3];
    size_t n_bytes;
    float *vectors = read_file(argv[2], &n_bytes);
    queries = vectors;
    n_queries = n_bytes / (DIM * sizeof *queries);
    CHECK(im_open(path, engine, &shared) == 0 && im_info(shared, &info) == 0 && info.dim == DIM);
    every_third = make_filter();
    Job jobs[SEARCHERS];
    pthread_t threads[SEARCHERS + 2];
    ImStats before = {.struct_bytes = sizeof before}, after = before;
    CHECK(pthread_barrier_init(&start, NULL, SEARCHERS + 2) == 0);
    for (uint32_t i = 0; i < SEARCHERS; i++) prepare(&jobs[i], i);
    CHECK(im_stats(shared, &before) == 0 && before.queries == 2 * SEARCHERS * n_queries);
    for (int i = 0; i < SEARCHERS + 2; i++) {
        void *(*body)(void *) = i < SEARCHERS ? searcher : meddler;
        CHECK(pthread_create(&threads[i], NULL, body, i < SEARCHERS ? &jobs[i] : NULL) == 0);
    }
    for (int i = 0; i < SEARCHERS + 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(strcmp(im_last_error(), "") == 0); /* the meddlers' failures were theirs */
    CHECK(im_stats(shared, &after) == 0 && after.errors == 0);
    CHECK(after.queries == before.queries * (1 + ROUNDS));
    for (int i = 0; i < SEARCHERS; i++) {
        free(jobs[i].ids);
        free(jobs[i].scores);
        im_range_free(jobs[i].within);
    }
    im_filter_free(every_third);
    im_close(shared);
    pthread_barrier_destroy(&start);
    free(vectors);
    return 0;
}
