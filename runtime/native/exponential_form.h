/* For a form of registers: see form_avx2.h. */

/* exp(x) for x up to 0, within 2 units in the last place; 0 for what is below -87. */
TARGET static inline Vector FORM(exponential)(Vector x) {
    const Vector lowest = REPEAT(-87.0f), bounded = LARGER(x, lowest);
    const Vector n = WHOLE(MULTIPLY(bounded, REPEAT(1.44269504f)));
    Vector r = SUBTRACT_PRODUCT(n, REPEAT(0.693359375f), bounded); /* ln 2 in two parts */
    r = SUBTRACT_PRODUCT(n, REPEAT(-2.12194440e-4f), r);
    Vector e = REPEAT(1.0f / 720);
    const float terms[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}; /* Taylor's, |r| < 0.35 */
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) e = MULTIPLY_ADD(e, r, REPEAT(terms[i]));
    return ZERO_BELOW(x, lowest, MULTIPLY(e, TWO_TO(n)));
}
