/* Products of small matrices with tiles of TOKENS words, the words lying along the lanes: [rows, TOKENS].

   Weights are packed: rows in groups as even as can be, each group [depth, rows of the group], so that a group's sums
   stay in registers while its weights are read one after another. */

#include "lanes.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define TOKENS (2 * LANES)
#if REGISTERS == 32
#define GROUP 12 /* rows whose sums lie in registers */
#else
#define GROUP 6
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE void store(float *to, lanes x) { *(loose *)to = x; }

static inline float total(lanes x) {
    float part[LANES];
    store(part, x);
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) part[l] += part[l + width];
    return part[0];
}

INLINE lanes clamped(lanes x, float least, float most) {
#ifdef __AVX512F__
    /* the second of two is given back where either is no number */
    return (lanes)_mm512_min_ps(_mm512_set1_ps(most), _mm512_max_ps(_mm512_set1_ps(least), (__m512)x));
#else
    return choose(x <= least, all(least), choose(x >= most, all(most), x));
#endif
}

/* 1 / x for x from 1 to 2¹²⁷. */
INLINE lanes inverse(lanes x) {
#ifdef __AVX512F__
    const lanes near = (lanes)_mm512_rcp14_ps((__m512)x);
    return near * (2.0f - x * near);
#else
    return 1 / x;
#endif
}

INLINE lanes sigmoid(lanes x) {
    const lanes halvings = clamped(x * -1.44269504f, -126, 126);
    const lanes shifted = halvings + 12582912.0f; /* 1.5 · 2²³: the sum is rounded to a whole number */
    const lanes r = halvings - (shifted - 12582912.0f);
    lanes p = all(1.3276472e-3f); /* 2^r from -½ to ½ */
    p = p * r + 9.6755413e-3f;
    p = p * r + 5.5507133e-2f;
    p = p * r + 2.4022120e-1f;
    p = p * r + 6.9314697e-1f;
    p = p * r + 1.0f;
    return inverse(1 + (lanes)((bits)p + ((bits)shifted << 23)));
}

INLINE long group_of(long rows) {
    const long groups = (rows + GROUP - 1) / GROUP;
    return (rows + groups - 1) / groups;
}

INLINE void product(const int height, const float *weights, long depth, const float *in, const float *start, float *out,
                    int add) {
    lanes sum[GROUP][2]; /* of fixed size, or it would not lie in registers */
    for (int r = 0; r < height; r++)
        for (int h = 0; h < 2; h++)
            sum[r][h] = add ? load(out + r * TOKENS + h * LANES) : start ? all(start[r]) : (lanes){0};
    for (long d = 0; d < depth; d++, weights += height, in += TOKENS) {
        const lanes one = load(in), two = load(in + LANES);
        for (int r = 0; r < height; r++) {
            sum[r][0] += weights[r] * one;
            sum[r][1] += weights[r] * two;
        }
    }
    for (int r = 0; r < height; r++)
        for (int h = 0; h < 2; h++) store(out + r * TOKENS + h * LANES, sum[r][h]);
}

/* out [rows, TOKENS] = packed · in [depth, TOKENS]; beginning with `start` [rows], with what is in `out`, or with zero. */
static void multiply(const float *packed, long rows, long depth, const float *in, const float *start, float *out, int add) {
    for (long first = 0, height = group_of(rows); first < rows; first += height) {
        const long there = rows - first < height ? rows - first : height;
        switch (there) {
#define OF(R) \
    case R: product(R, packed, depth, in, start, out, add); break;
            OF(1) OF(2) OF(3) OF(4) OF(5) OF(6)
#if GROUP == 12
            OF(7) OF(8) OF(9) OF(10) OF(11) OF(12)
#endif
#undef OF
        }
        packed += there * depth;
        out += there * TOKENS;
        if (start) start += there;
    }
}
