/* Children that are forked while other threads search close their copies of the index, and the searches go on.
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

enum { DIM = 16, K = 10, SEARCHERS = 2, CHILDREN = 40, SECONDS = 20 };

static ImIndex *shared;
static const float *queries;
static size_t n_queries;
static atomic_int n_searches, is_over;

static void *searcher(void *unused) {
    ImSearchParams params;
    int64_t *ids = malloc(n_queries * K * sizeof *ids);
    float *scores = malloc(n_queries * K * sizeof *scores);
    (void)unused;
    CHECK(ids && scores && im_search_params_default(&params, sizeof params) == 0 && params.k == K);
    while (!atomic_load(&is_over)) {
        CHECK(im_search(shared, queries, IM_FLOAT32, n_queries, DIM, &params, ids, scores, NULL) == 0);
        atomic_fetch_add(&n_searches, 1);
    }
    free(ids);
    free(scores);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t n_bytes;
    float *vectors = read_file(argv[2], &n_bytes);
    queries = vectors;
    n_queries = n_bytes / (DIM * sizeof *queries);
    CHECK(im_open(argv[1], argv[3], &shared) == 0);
    pthread_t threads[SEARCHERS];
    for (int i = 0; i < SEARCHERS; i++) CHECK(pthread_create(&threads[i], NULL, searcher, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        int before = atomic_load(&n_searches);
        while (atomic_load(&n_searches) == before) sched_yield(); /* each child at another moment of a search */
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS); /* ends a child that waits for a thread that it does not have */
            im_close(shared);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < SEARCHERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    im_close(shared);
    free(vectors);
    return 0;
}
