/* Searches on a slow device end soon after they are cancelled, from whatever thread, and later ones at once; others go
 * on.
 *
 *   cancel INDEX QUERIES ENGINE
 *
 * QUERIES are float32 vectors of 16 dimensions; with ENGINE a search takes many seconds.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <pthread.h>
#include <time.h>

#include "check.h"

enum { DIM = 16, K = 10, CALLERS = 6 };

static ImIndex *shared;
static const float *query;
static ImCancel *cancel;

static double seconds(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int32_t search(const ImCancel *by) {
    ImSearchParams params;
    int64_t ids[K];
    float scores[K];
    CHECK(im_search_params_default(&params, sizeof params) == 0 && params.k == K && params.cancel == NULL);
    params.beam_width = by ? 1 : 64;
    params.search_list_size = by ? 200 : K;
    params.cancel = by;
    return im_search(shared, query, IM_FLOAT32, 1, DIM, &params, ids, scores, NULL);
}

/* A search that reads nothing of the slow device: of no query. */
static int32_t quick(const ImCancel *by) {
    ImSearchParams params;
    CHECK(im_search_params_default(&params, sizeof params) == 0);
    params.cancel = by;
    return im_search(shared, NULL, IM_FLOAT32, 0, DIM, &params, NULL, NULL, NULL);
}

static void *caller(void *unused) {
    (void)unused;
    FAILS(IM_ECANCELED, "interrupted", search(cancel));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t n_bytes;
    float *vectors = read_file(argv[2], &n_bytes);
    CHECK(n_bytes >= DIM * sizeof *vectors);
    query = vectors;
    FAILS(IM_EINVAL, "im_cancel_new: out", im_cancel_new(NULL));
    im_cancel(NULL);
    CHECK(im_open(argv[1], argv[3], &shared) == 0 && im_cancel_new(&cancel) == 0);
    pthread_t threads[CALLERS];
    double begin = seconds();
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_create(&threads[i], NULL, caller, NULL) == 0);
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    im_cancel(cancel);
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(seconds() - begin < 5);
    CHECK(search(NULL) == 0);
    FAILS(IM_ECANCELED, "interrupted", quick(cancel));
    CHECK(quick(NULL) == 0);
    im_close(shared);
    im_cancel_free(cancel);
    im_cancel_free(NULL);
    free(vectors);
    return 0;
}
