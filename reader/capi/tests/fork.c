/* A child process searches an index that its parent opened and used, with its filter and cache, and both go on finding
 * the same. What the child does is not counted in the parent.
 *
 *   fork INDEX QUERIES ENGINE
 *
 * QUERIES are float32 vectors of 16 dimensions.
 */
#define _POSIX_C_SOURCE 200809L /* fork */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { DIM = 16, K = 10, MOST = 64, SECONDS = 20 };

static ImIndex *index_;
static ImSearchParams params;
static const float *queries;
static size_t n;
static int64_t expected[MOST * K];

/* Queries that the index has counted. */
static uint64_t counted(void) {
    ImStats stats = {.struct_bytes = sizeof stats};
    CHECK(im_stats(index_, &stats) == 0 && stats.errors == 0 && stats.cache_bytes > 0);
    return stats.queries;
}

/* The calling thread finds what is expected, and so does it with threads of the index. */
static void search_twice(void) {
    int64_t ids[MOST * K];
    float scores[MOST * K];
    for (params.threads = 1; params.threads <= 3; params.threads += 2) {
        CHECK(im_search(index_, queries, IM_FLOAT32, n, DIM, &params, ids, scores, NULL) == 0);
        CHECK(memcmp(ids, expected, n * K * sizeof *ids) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t n_bytes;
    float *vectors = read_file(argv[2], &n_bytes), scores[MOST * K];
    queries = vectors;
    n = n_bytes / (DIM * sizeof *vectors);
    CHECK(n > 0 && n <= MOST);
    ImInfo info = {.struct_bytes = sizeof info};
    ImFilter *filter;
    uint8_t bitmap[1024];
    memset(bitmap, 0x7f, sizeof bitmap); /* all vectors except each eighth */
    CHECK(im_open(argv[1], argv[3], &index_) == 0 && im_info(index_, &info) == 0);
    CHECK(info.n_vectors <= 8 * sizeof bitmap);
    CHECK(im_filter_new(index_, bitmap, (size_t)(info.n_vectors + 7) / 8, &filter) == 0);
    CHECK(im_cache(index_, 1 << 13) == 0);
    CHECK(im_search_params_default(&params, sizeof params) == 0 && params.k == K);
    params.allow = filter;
    CHECK(im_search(index_, queries, IM_FLOAT32, n, DIM, &params, expected, scores, NULL) == 0 && expected[0] >= 0);
    search_twice();
    uint64_t before = counted();
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS); /* ends a child that waits for a thread that it does not have */
        search_twice();
        CHECK(counted() == before + 2 * n);
        im_filter_free(filter);
        im_close(index_);
        CHECK(strcmp(im_last_error(), "") == 0); /* how functions without a result tell of a failure */
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(counted() == before);
    search_twice();
    im_filter_free(filter);
    im_close(index_);
    free(vectors);
    return 0;
}
