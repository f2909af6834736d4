/* Search parameters from words such as "L=64". */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "indexmill.h"

/* Sets `value` from "NAME=NUMBER", the name being given with its "="; 0 if the word has another name, or no number. */
static int set_number(const char *word, const char *name, uint32_t *value) {
    size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && sscanf(word + length, "%" SCNu32, value) == 1;
}

/* Sets k, L, W, policy (a name), threads or inflight; 0 if the word is none of these. */
static int set_search(const char *word, ImSearchParams *params) {
    static const char *policies[] = {"beam", "page", "completion", "pipeline"}; /* IM_POLICY_BEAM .. */
    for (uint32_t i = 0; strncmp(word, "policy=", 7) == 0 && i < 4; i++) {
        if (strcmp(word + 7, policies[i]) == 0) return params->policy = i, 1;
    }
    return set_number(word, "k=", &params->k) || set_number(word, "L=", &params->search_list_size)
           || set_number(word, "W=", &params->beam_width) || set_number(word, "threads=", &params->threads)
           || set_number(word, "inflight=", &params->inflight);
}

#endif
