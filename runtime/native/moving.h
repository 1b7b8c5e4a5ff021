/* Rows of caches that go on from other rows. */

#ifndef EDGEFORMER_MOVING_H
#define EDGEFORMER_MOVING_H

#include "choosing.h"

/* Caches lie `cache_step` bytes after one another, their rows `row_step`, a row's heads `head_step`, of which the first
   `used` bytes count. Row i gets what row rows[i] has had, of `count`. Returns 0, 1 where there is no memory, or 2 where
   there is no such row. */
EXPORTED int edgeformer_move(void *caches, int64_t cache_count, int64_t cache_step, int64_t row_step, int64_t heads,
                             int64_t head_step, int64_t used, const int64_t *rows, int64_t count);

#endif
