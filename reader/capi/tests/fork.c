/* A child process searches an index that its parent opened and used, and both go on finding the same.
 *
 *   fork INDEX QUERIES ENGINE
 *
 * QUERIES are float32 vectors of 16 dimensions.
 */
#define _POSIX_C_SOURCE 200809L /* fork */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { DIM = 16, K = 10 };

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t n_bytes;
    float *queries = read_file(argv[2], &n_bytes);
    size_t n = n_bytes / (DIM * sizeof *queries);
    int64_t *ids = malloc(3 * n * K * sizeof *ids); /* before the fork, in the child, in the parent again */
    float *scores = malloc(n * K * sizeof *scores);
    ImIndex *index;
    ImSearchParams params;
    CHECK(ids && scores && im_open(argv[1], argv[3], &index) == 0);
    CHECK(im_search_params_default(&params, sizeof params) == 0 && params.k == K);
#define SEARCH(turn) im_search(index, queries, IM_FLOAT32, n, DIM, &params, ids + (turn)*n * K, scores, NULL)
    CHECK(SEARCH(0) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(SEARCH(1) == 0);
        CHECK(memcmp(ids, ids + n * K, n * K * sizeof *ids) == 0);
        im_close(index);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(SEARCH(2) == 0);
    CHECK(memcmp(ids, ids + 2 * n * K, n * K * sizeof *ids) == 0);
    im_close(index);
    free(ids);
    free(scores);
    free(queries);
    return 0;
}
