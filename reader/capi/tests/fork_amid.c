/* Children that are forked while other threads search release their copies of all objects, and search an index that
 * they open themselves; the searches of the parent go on. All find the same.
 *
 *   fork_amid INDEX QUERIES ENGINE
 *
 * QUERIES are float32 vectors of 16 dimensions.
 */
#define _POSIX_C_SOURCE 200809L /* fork */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { DIM = 16, K = 10, MOST = 64, SEARCHERS = 2, CHILDREN = 40, SECONDS = 20 };

static ImIndex *shared;
static const float *queries;
static size_t n_queries;
static int64_t expected[MOST * K];
static atomic_int n_searches, is_over;

/* Searches with two threads; 1 if it finds what is expected. */
static int finds_the_same(const ImIndex *index) {
    ImSearchParams params;
    int64_t ids[MOST * K];
    float scores[MOST * K];
    CHECK(im_search_params_default(&params, sizeof params) == 0 && params.k == K);
    params.threads = 2;
    CHECK(im_search(index, queries, IM_FLOAT32, n_queries, DIM, &params, ids, scores, NULL) == 0);
    return memcmp(ids, expected, n_queries * K * sizeof *ids) == 0;
}

static void *searcher(void *unused) {
    (void)unused;
    while (!atomic_load(&is_over)) {
        CHECK(finds_the_same(shared));
        atomic_fetch_add(&n_searches, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t n_bytes;
    float *vectors = read_file(argv[2], &n_bytes);
    queries = vectors;
    n_queries = n_bytes / (DIM * sizeof *queries);
    CHECK(n_queries > 0 && n_queries <= MOST);
    ImSearchParams params;
    ImInfo info = {.struct_bytes = sizeof info};
    ImFilter *filter;
    ImCancel *cancel;
    ImRangeResult *within;
    uint8_t bitmap[1024] = {1};
    float scores[MOST * K];
    CHECK(im_open(argv[1], argv[3], &shared) == 0 && im_info(shared, &info) == 0);
    CHECK(info.n_vectors <= 8 * sizeof bitmap);
    CHECK(im_filter_new(shared, bitmap, (size_t)(info.n_vectors + 7) / 8, &filter) == 0 && im_cancel_new(&cancel) == 0);
    CHECK(im_search_params_default(&params, sizeof params) == 0);
    CHECK(im_range_search(shared, queries, IM_FLOAT32, 1, DIM, 1e6f, &params, &within) == 0 && within->starts[1] > 0);
    CHECK(im_search(shared, queries, IM_FLOAT32, n_queries, DIM, &params, expected, scores, NULL) == 0);
    pthread_t threads[SEARCHERS];
    for (int i = 0; i < SEARCHERS; i++) CHECK(pthread_create(&threads[i], NULL, searcher, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        int before = atomic_load(&n_searches);
        while (atomic_load(&n_searches) == before) sched_yield(); /* each child at another moment of a search */
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS); /* ends a child that waits for a thread that it does not have */
            ImIndex *own;
            CHECK(im_open(argv[1], argv[3], &own) == 0 && finds_the_same(own));
            im_range_free(within);
            im_filter_free(filter);
            im_cancel_free(cancel);
            im_close(shared);
            CHECK(finds_the_same(own));
            im_close(own);
            CHECK(strcmp(im_last_error(), "") == 0); /* how functions without a result tell of a failure */
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        before = atomic_load(&n_searches);
        while (atomic_load(&n_searches) == before) sched_yield(); /* the parent's searches go on */
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < SEARCHERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    im_range_free(within);
    im_filter_free(filter);
    im_cancel_free(cancel);
    im_close(shared);
    free(vectors);
    return 0;
}
