/* An index that is exchanged with another one all the time opens as one of the two.
 *
 *   replaced INDEX VECTORS OTHER_VECTORS
 *
 * One index has VECTORS vectors, the other one OTHER_VECTORS.
 */
#include <time.h>

#include "check.h"

enum { LEAST = 50, SECONDS = 20 };

int main(int argc, char **argv) {
    CHECK(argc == 4);
    unsigned long n[2] = {strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10)}, seen[2] = {0, 0};
    time_t began = time(NULL);
    while (seen[0] + seen[1] < LEAST || !seen[0] || !seen[1]) {
        ImIndex *index;
        ImInfo info = {.struct_bytes = sizeof info};
        CHECK(im_open(argv[1], NULL, &index) == 0);
        CHECK(im_info(index, &info) == 0 && (info.n_vectors == n[0] || info.n_vectors == n[1]));
        seen[info.n_vectors == n[1]] += 1;
        im_close(index);
        CHECK(time(NULL) - began < SECONDS);
    }
    return 0;
}
