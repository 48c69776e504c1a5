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
