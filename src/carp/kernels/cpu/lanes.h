/* Vectors of LANES numbers, as many as a register of the processor holds, and the functions of them that kernels
   share. Wider ones would be correct too, but GCC takes them apart number by number, which is twenty times slower. */

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int whole __attribute__((vector_size(4 * LANES)));
typedef unsigned bits __attribute__((vector_size(4 * LANES))); /* what does not fit is cut off, and nothing else happens */
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* in memory, at any address */

static inline lanes all(float x) { return x - (lanes){0}; }
static inline lanes load(const float *from) { return *(const loose *)from; }
static inline lanes choose(whole mask, lanes yes, lanes no) { return (lanes)((mask & (whole)yes) | (~mask & (whole)no)); }
/* What is no number stays none in these, or weights that are none would give ratings that are. */
static inline lanes larger(lanes a, lanes b) { return choose(a <= b, b, a); }

static inline lanes root(lanes x) {
    for (int l = 0; l < LANES; l++) x[l] = __builtin_sqrtf(x[l]);
    return x;
}

/* x, but not beyond ±most. */
static inline lanes within(lanes x, float most) {
    x = choose(x <= -most, all(-most), x);
    return choose(x >= most, all(most), x);
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
    return p * (lanes)(((bits)shifted - 0x4B400000u + 127u) << 23);
}

/* e^x to a few units in the last place. */
static inline lanes power(lanes x) {
    x = larger(x, all(-87.0f));
    return moderate_power(choose(x >= 88.0f, all(88.0f), x));
}

/* The lanes of two vectors' first and second halves, taken in turns. */
#if LANES == 16
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define FIRST_HALVES 0, 4, 1, 5
#define SECOND_HALVES 2, 6, 3, 7
#endif

/* LANES vectors turned over: the i-th number of the j-th becomes the j-th of the i-th. */
static inline void turn_over(lanes *square) {
#if defined(__clang__) || __GNUC__ >= 12
    for (int left = LANES; left > 1; left /= 2) { /* woven together as often as LANES can be halved, it is turned over */
        lanes woven[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            const lanes a = square[i], b = square[i + LANES / 2];
            woven[2 * i] = __builtin_shufflevector(a, b, FIRST_HALVES);
            woven[2 * i + 1] = __builtin_shufflevector(a, b, SECOND_HALVES);
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
