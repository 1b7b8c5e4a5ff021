#include "moving.h"

#include <stdlib.h>
#include <string.h>

int edgeformer_move(void *caches, int64_t cache_count, int64_t cache_step, int64_t row_step, int64_t heads,
                    int64_t head_step, int64_t used, const int64_t *rows, int64_t count) {
    const size_t part = (size_t)used, whole = (size_t)heads * part;
    int64_t moved = 0;
    for (int64_t row = 0; row < count; row++) {
        if (rows[row] < 0 || rows[row] >= count) return 2;
        moved += rows[row] != row;
    }
    if (moved == 0 || whole == 0) return 0;
    char *held = malloc((size_t)moved * whole); /* what rows had before others are written */
    if (held == NULL) return 1;
    for (int64_t cache = 0; cache < cache_count; cache++) {
        char *data = (char *)caches + cache * cache_step, *at = held;
        for (int64_t row = 0; row < count; row++)
            for (int64_t head = 0; head < heads && rows[row] != row; head++, at += part)
                memcpy(at, data + rows[row] * row_step + head * head_step, part);
        at = held;
        for (int64_t row = 0; row < count; row++)
            for (int64_t head = 0; head < heads && rows[row] != row; head++, at += part)
                memcpy(data + row * row_step + head * head_step, at, part);
    }
    free(held);
    return 0;
}
