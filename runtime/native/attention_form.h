/* Attention in vectors of VECTOR numbers: included by attention.c for each form of registers. */

/* Turns a block's scores of one row into weights, relative to the largest score so far. */
TARGET static void FORM(weigh)(Part *part, int64_t row, int64_t keys, int64_t head_dim) {
    float *scores = part->scores + row * KEYS, *results = part->results + row * head_dim;
    Vector most = REPEAT(part->largest[row]), sum = REPEAT(0);
    for (int64_t k = 0; k < keys; k += VECTOR) most = LARGER(most, LOAD(scores + k));
    const float largest = LARGEST(most);
    const Vector offset = REPEAT(largest);
    for (int64_t k = 0; k < keys; k += VECTOR) {
        const Vector weights = FORM(exponential)(SUBTRACT(LOAD(scores + k), offset));
        STORE(scores + k, weights);
        sum = ADD(sum, weights);
    }
    if (largest > part->largest[row]) {
        const Vector kept = FORM(exponential)(REPEAT(part->largest[row] - largest));
        float first[VECTOR];
        STORE(first, kept);
        part->sums[row] *= first[0], part->largest[row] = largest;
        for (int64_t i = 0; i < head_dim; i += VECTOR) STORE(results + i, MULTIPLY(LOAD(results + i), kept));
    }
    part->sums[row] += SUM(sum);
}

/* Scores of all rows with a block of keys, `padded` of them; those behind its end are not seen. */
TARGET static void FORM(score)(Part *part, int64_t rows, const float *keys, int64_t step, int64_t count, int64_t padded,
                               int64_t head_dim) {
    for (int64_t k = 0; k < padded; k += VECTOR) {
        const float *some[VECTOR];
        for (int64_t i = 0; i < head_dim; i += VECTOR) {
            for (int64_t j = 0; j < VECTOR; j++) some[j] = keys + least(k + j, count - 1) * step + i;
            FORM(turn_square)(some, part->turned + i * KEYS + k);
        }
    }
    const FORM(Matrices) m = {part->queries, part->turned, part->scores, head_dim, KEYS, KEYS, head_dim, 0};
    FORM(multiply)(&m, rows, padded);
}

TARGET static void FORM(attend)(const Attention *a, size_t number) {
    const int64_t head_dim = a->head_dim, group = a->heads / a->kv_heads;
    const int64_t by_tokens = (a->q_len + a->tokens_each - 1) / a->tokens_each;
    const int64_t by_heads = (group + a->heads_each - 1) / a->heads_each;
    int64_t left = (int64_t)number; /* of (batch, kv_heads, by_heads, by_tokens), with the longest texts first */
    const int64_t token = (by_tokens - 1 - left % by_tokens) * a->tokens_each;
    const int64_t head_in_group = (left /= by_tokens) % by_heads * a->heads_each;
    const int64_t shared = left / by_heads, row = shared / a->kv_heads, kv_head = shared % a->kv_heads;
    const int64_t heads = least(a->heads_each, group - head_in_group), tokens = least(a->tokens_each, a->q_len - token);
    const int64_t first_head = kv_head * group + head_in_group, rows = heads * tokens;
    const int64_t first = a->lengths == NULL ? first_position(a, row) + token : 0;
    const float *keys = a->keys.data + row * a->keys.row + kv_head * a->keys.head;
    const float *values = a->values.data + row * a->values.row + kv_head * a->values.head;
    Part part;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = r / heads, head = first_head + r % heads;
        const float *query = a->query + (row * a->q_len + token + t) * a->query_stride + head * head_dim;
        turn(a, query, first + t, a->scale, part.queries + r * head_dim);
        part.largest[r] = HIDDEN, part.sums[r] = 0;
    }
    memset(part.results, 0, (size_t)(rows * head_dim) * sizeof(float));
    const int64_t end = a->lengths == NULL ? first + tokens : a->lengths[row]; /* of the keys that any row sees */
    const int64_t begin = a->window > 0 && first + 1 > a->window ? (first + 1 - a->window) / KEYS * KEYS : 0;
    for (int64_t block = begin; block < end; block += KEYS) {
        const int64_t count = least(KEYS, end - block), padded = (count + VECTOR - 1) / VECTOR * VECTOR;
        const float *of_block = keys + block * a->keys.token;
        if (a->q_len == 1)
            score_each(&part, (int)rows, of_block, a->keys.token, count, head_dim);
        else
            FORM(score)(&part, rows, of_block, a->keys.token, count, padded, head_dim);
        for (int64_t r = 0; r < rows; r++) {
            float *scores = part.scores + r * KEYS;
            const int64_t position = a->lengths == NULL ? first + r / heads : end - 1;
            const int64_t hidden = a->window > 0 ? position + 1 - a->window - block : 0;
            for (int64_t k = 0; k < least(hidden, count); k++) scores[k] = HIDDEN;
            for (int64_t k = position + 1 - block > 0 ? position + 1 - block : 0; k < padded; k++) scores[k] = HIDDEN;
            FORM(weigh)(&part, r, padded, head_dim);
        }
        const FORM(Matrices) m = {
            part.scores, values + block * a->values.token, part.results, KEYS, a->values.token, head_dim, count, 1};
        FORM(multiply)(&m, rows, head_dim);
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = r / heads, head = first_head + r % heads;
        float *y = a->y + (row * a->q_len + token + t) * a->heads * head_dim + head * head_dim;
        const float share = part.sums[r] > 0 ? 1.0f / part.sums[r] : 0; /* of a source of no tokens */
        for (int64_t i = 0; i < head_dim; i += VECTOR)
            STORE(y + i, MULTIPLY(LOAD(part.results + r * head_dim + i), REPEAT(share)));
    }
}
