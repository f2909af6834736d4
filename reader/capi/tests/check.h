/* What the C tests share: a check that says which one failed, and a whole file in memory. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "indexmill.h"

#define CHECK(holds)                                                                                 \
    do {                                                                                             \
        if (!(holds)) {                                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #holds, im_last_error());         \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

/* The call fails with this code, and the message contains this text. */
#define FAILS(code, text, call)                                                                      \
    do {                                                                                             \
        CHECK((call) == (code));                                                                     \
        if (!strstr(im_last_error(), text)) {                                                        \
            fprintf(stderr, "%s:%d: expected \"%s\" in: %s\n", __FILE__, __LINE__, text, im_last_error()); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

static inline void *read_file(const char *path, size_t *n_bytes) {
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *n_bytes = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*n_bytes);
    CHECK(bytes && fread(bytes, 1, *n_bytes, file) == *n_bytes);
    fclose(file);
    return bytes;
}

#endif
