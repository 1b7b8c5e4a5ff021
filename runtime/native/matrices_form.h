/* Products of matrices of floats, for a form of registers: see form_avx2.h. */

/* A product of matrices, or what it adds to c: a (rows, depth) times b (depth, columns). */
typedef struct {
    const float *a, *b;
    float *c;
    int64_t a_step, b_step, c_step, depth; /* floats from a row to the next */
    int adds;
} FORM(Matrices);

TARGET static SPECIALIZED void FORM(tile)(const FORM(Matrices) * m, int64_t row, int64_t column, const int rows,
                                          const int vectors) {
    const float *a = m->a + row * m->a_step, *b = m->b + column;
    float *c = m->c + row * m->c_step + column;
    Vector sums[TOGETHER][VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = m->adds ? LOAD(c + r * m->c_step + v * VECTOR) : REPEAT(0);
    for (int64_t i = 0; i < m->depth; i++, b += m->b_step) {
        Vector of_row[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            of_row[v] = LOAD(b + v * VECTOR);
            SOON(b + SOON_ROWS * m->b_step + v * VECTOR);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const Vector factor = REPEAT(a[r * m->a_step + i]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = MULTIPLY_ADD(factor, of_row[v], sums[r][v]);
                IN_REGISTER(sums[r][v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) STORE(c + r * m->c_step + v * VECTOR, sums[r][v]);
}

TARGET static SPECIALIZED void FORM(columns)(const FORM(Matrices) * m, int64_t row, int64_t count, const int rows) {
    int64_t column = 0;
    for (; column + VECTORS * VECTOR <= count; column += VECTORS * VECTOR) FORM(tile)(m, row, column, rows, VECTORS);
    for (; column < count; column += VECTOR) FORM(tile)(m, row, column, rows, 1);
}

#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        FORM(columns)(m, row, count, rows);                                                                            \
        break;

TARGET static void FORM(multiply)(const FORM(Matrices) * m, int64_t all, int64_t count) {
    for (int64_t row = 0, rows; row < all; row += rows) {
        rows = rows_each(all - row, TOGETHER);
        switch (rows) {
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
        }
    }
}

#undef CASE
