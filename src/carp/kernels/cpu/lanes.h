/* Vectors of LANES numbers, and the functions of them that kernels share. */

#define LANES 16

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int whole __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* in memory, at any address */

static inline lanes all(float x) { return x - (lanes){0}; }
static inline lanes load(const float *from) { return *(const loose *)from; }
static inline lanes choose(whole mask, lanes yes, lanes no) { return (lanes)((mask & (whole)yes) | (~mask & (whole)no)); }
static inline lanes larger(lanes a, lanes b) { return choose(a > b, a, b); }

static inline lanes root(lanes x) {
    for (int l = 0; l < LANES; l++) x[l] = __builtin_sqrtf(x[l]);
    return x;
}

/* x, but not beyond ±most. */
static inline lanes within(lanes x, float most) {
    x = choose(x > -most, x, all(-most));
    return choose(x < most, x, all(most));
}

/* e^x to a few units in the last place, for x between -87 and 88. */
static inline lanes moderate_power(lanes x) {
    const lanes shifted = x * 1.44269504f + 12582912.0f; /* 1.5 · 2²³: the sum is rounded to a whole number */
    const lanes n = shifted - 12582912.0f;
    const lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    lanes p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * (lanes)((((whole)shifted - 0x4B400000) + 127) << 23);
}

/* e^x to a few units in the last place. */
static inline lanes power(lanes x) {
    x = larger(x, all(-87.0f));
    return moderate_power(choose(x < 88.0f, x, all(88.0f)));
}

/* LANES vectors turned over: the i-th number of the j-th becomes the j-th of the i-th. */
static inline void turn_over(lanes *square) {
#if LANES == 16 && (defined(__clang__) || __GNUC__ >= 12)
    for (int times = 0; times < 4; times++) { /* what is woven together as often as LANES can be halved is turned */
        lanes woven[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            const lanes a = square[i], b = square[i + LANES / 2];
            woven[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            woven[2 * i + 1] =
                __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        for (int i = 0; i < LANES; i++) square[i] = woven[i];
    }
#else
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < i; j++) {
            const float kept = square[i][j];
            square[i][j] = square[j][i];
            square[j][i] = kept;
        }
#endif
}
