/* For a form of registers: see form_avx2.h. */

/* Some rows of 64 columns. */
TARGET static void FORM(multiply_panel)(const Work *work, int64_t part) {
    const int64_t panel = part / work->row_parts, first = part % work->row_parts * ROWS_EACH, left = work->rows - first;
    const int64_t rows = left < ROWS_EACH ? left : ROWS_EACH, n = work->n, k = work->k;
    const float *weight = work->weight + panel * k * PANEL, *x = work->x + first * k;
    float *y = work->y + first * n + panel * PANEL;
    for (int64_t row = 0; row < rows; row++) memcpy(y + row * n, work->bias + panel * PANEL, PANEL * sizeof *y);
    for (int64_t i = 0; i < k; i += INPUTS_EACH) {
        const int64_t depth = k - i < INPUTS_EACH ? k - i : INPUTS_EACH;
        const FORM(Matrices) m = {x + i, weight + i * PANEL, y, k, PANEL, n, depth, 1};
        FORM(multiply)(&m, rows, PANEL);
    }
    if (work->lowest < 0) return;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < PANEL; i += VECTOR)
            STORE(y + row * n + i, LARGER(REPEAT(work->lowest), LOAD(y + row * n + i)));
}
