/* For a form of registers: see form_avx2.h. */

TARGET static void FORM(gate_row)(const float *gates, const float *values, int64_t width, float *y) {
    const Vector zero = REPEAT(0), unit = REPEAT(1);
    for (int64_t i = 0; i < width; i += VECTOR) {
        const Vector x = LOAD(gates + i), size = LARGER(x, SUBTRACT(zero, x));
        /* 1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) below zero: no exponential overflows */
        const Vector decay = FORM(exponential)(SUBTRACT(zero, size));
        const Vector share = ADD(decay, ZERO_BELOW(x, zero, SUBTRACT(unit, decay)));
        const Vector gate = DIVIDE(MULTIPLY(x, share), ADD(unit, decay));
        STORE(y + i, MULTIPLY(gate, LOAD(values + i)));
    }
}
