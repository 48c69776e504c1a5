/* What pairs in lanes need, to be scored and to learn: products of matrices, the squash, the coupling. */

#include "lanes.h"

#if REGISTERS == 32
#define TILE 25  /* rows whose sums lie in registers */
#define ACROSS 4 /* vectors of a gradient's row whose sums lie in registers, of five rows */
#else
#define TILE 10
#define ACROSS 2
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

typedef struct {
    long m, g, k, iterations; /* M, length of a side's vector, k, τ */
    long wide;                /* 2k rounded up to whole vectors */
    int bi_agreement;
    const float *votes;                        /* [M · M, 2g, wide], the difference's part first, zeros from 2k on */
    const float *capsule_bias;                 /* [2, k] or null */
    const float *highway, *highway_bias;       /* [2, k, 2k], the gate's part first, [2, 2k] */
    const float *regression, *regression_bias; /* [2, k], [2] */
} judge_weights;

/* Vectors as long as these are laid on the stack; longer ones, and all that grows with M, need room elsewhere. */
#define MOST_ROWS 512

static inline int short_enough(const judge_weights *w) {
    return w->m > 0 && w->g > 0 && w->k > 0 && w->iterations > 0 && 2 * w->g <= MOST_ROWS && w->wide <= MOST_ROWS;
}

/* LANES rows [width] turned so that each is a lane. */
static inline void turn(const float *const *rows, long width, lanes *out) {
    for (long done = 0; done < width && width >= LANES; done += LANES) {
        const long j = done + LANES <= width ? done : width - LANES; /* the last ones reach back */
        for (int l = 0; l < LANES; l++) out[j + l] = load(rows[l] + j);
        turn_over(out + j);
    }
    for (long j = 0; j < width && width < LANES; j++)
        for (int l = 0; l < LANES; l++) out[j][l] = rows[l][j];
}

typedef struct {
    const float *weights, *start; /* [depth, stride], and [stride] or null */
    long stride, depth;
} matrix;

/* start + weightsᵀ x for `rows` of the weights' columns from `first` on; added to `total` too where that is given. */
INLINE void tile(int rows, matrix by, long first, const lanes *x, lanes *out, lanes *total) {
    lanes sum[TILE];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = all(by.start ? by.start[first + r] : 0.0f);
    for (long d = 0; d < by.depth; d++) {
        const float *weights = by.weights + d * by.stride + first;
        const lanes one = x[d];
        UNROLL for (int r = 0; r < rows; r++) sum[r] += weights[r] * one;
    }
    UNROLL for (int r = 0; r < rows; r++) out[first + r] = sum[r];
    if (total) UNROLL for (int r = 0; r < rows; r++) total[first + r] += sum[r];
}

static inline void product(matrix by, const lanes *x, long rows, lanes *out, lanes *total) {
    long r = 0;
    for (; r + TILE <= rows; r += TILE) tile(TILE, by, r, x, out, total);
    for (; r + 5 <= rows; r += 5) tile(5, by, r, x, out, total);
    for (; r < rows; r++) tile(1, by, r, x, out, total);
}

INLINE void contract_tile(int rows, int across, const float *x, const float *y, long wide, float *into) {
    lanes sum[5][ACROSS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < across; c++) sum[r][c] = load(into + r * wide + c * LANES);
    for (long l = 0; l < LANES; l++)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int c = 0; c < across; c++) sum[r][c] += x[r * LANES + l] * load(y + l * wide + c * LANES);
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < across; c++) *(loose *)(into + r * wide + c * LANES) = sum[r][c];
}

/* into [count, wide] += the sum over the pairs of x [count] times y [rows]: a matrix's gradient. */
static inline void contract(const lanes *x, long count, const lanes *y, long rows, long wide, float *into) {
    lanes room[wide], square[LANES];
    float *turned = (float *)room; /* [LANES, wide] */
    for (long first = 0; first < wide; first += LANES) {
        for (long r = 0; r < LANES; r++) square[r] = first + r < rows ? y[first + r] : (lanes){0};
        turn_over(square);
        for (long l = 0; l < LANES; l++) room[(l * wide + first) / LANES] = square[l];
    }
    for (long c = 0; c < wide;) {
        const int whole = c + ACROSS * LANES <= wide;
        long r = 0;
        for (; r + 5 <= count; r += 5) {
            if (whole) contract_tile(5, ACROSS, (const float *)(x + r), turned + c, wide, into + r * wide + c);
            else contract_tile(5, 1, (const float *)(x + r), turned + c, wide, into + r * wide + c);
        }
        for (; r < count; r++) {
            if (whole) contract_tile(1, ACROSS, (const float *)(x + r), turned + c, wide, into + r * wide + c);
            else contract_tile(1, 1, (const float *)(x + r), turned + c, wide, into + r * wide + c);
        }
        c += whole ? ACROSS * LANES : LANES;
    }
}

static inline lanes square_of(const lanes *vector, long k) {
    lanes sum[5] = {{0}};
    long j = 0;
    for (; j + 5 <= k; j += 5)
        UNROLL for (int i = 0; i < 5; i++) sum[i] += vector[j + i] * vector[j + i];
    for (; j < k; j++) sum[0] += vector[j] * vector[j];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]) + sum[4];
}

static inline void squash(lanes *mixture, const float *bias, long k) {
    for (long j = 0; j < k && bias; j++) mixture[j] += bias[j];
    const lanes square = square_of(mixture, k);
    const lanes shorter = square / (1 + square) / root(square + 1e-12f);
    for (long j = 0; j < k; j++) mixture[j] *= shorter;
}

/* Coupling from agreement, both [U, 2], however large the agreements are: see bi_agreement and by_agreement in
   models/carp.py. `between` [U], where it is given, gets the first capsule's part of the softmax over the capsules;
   `share` is room for [U]. */
static inline void couple(lanes *b, long units, int bi_agreement, lanes *between, lanes *share) {
    lanes top[2], sum[2] = {{0}, {0}};
    for (long u = 0; u < units; u++) {
        const lanes apart = b[2 * u] - b[2 * u + 1], most = larger(b[2 * u], b[2 * u + 1]);
        const lanes less = power(-larger(apart, -apart)), both = 1 + less;
        share[u] = 1 / (bi_agreement ? root(both) : both);
        if (between) between[u] = choose(apart > 0.0f, all(1), less) / both;
        for (int s = 0; s < 2; s++) {
            b[2 * u + s] -= bi_agreement ? 0.5f * most : most;
            top[s] = u ? larger(b[2 * u + s], top[s]) : b[s];
        }
    }
    for (long u = 0; u < 2 * units; u++) {
        b[u] = power(bi_agreement ? b[u] - top[u % 2] : b[u]) * share[u / 2];
        sum[u % 2] += b[u];
    }
    for (long u = 0; u < 2 * units && bi_agreement; u++) b[u] /= sum[u % 2];
}

/* One iteration's mixture and coupling [U, 2], however large the agreements are. */
static inline void mix_carefully(const judge_weights *w, const lanes *votes, const lanes *heard, lanes *mixture,
                                 lanes *coupling, lanes *between, lanes *share) {
    const long units = w->m * w->m, k = w->k;
    for (long u = 0; u < 2 * units; u++) {
        lanes sum = {0};
        for (long j = 0; j < k; j++) sum += votes[u * k + j] * heard[u % 2 * k + j];
        coupling[u] = sum;
    }
    couple(coupling, units, w->bi_agreement, between, share);
    for (int s = 0; s < 2; s++)
        for (long j = s * k; j < (s + 1) * k; j++) {
            lanes sum = {0};
            for (long u = 0; u < units; u++) sum += votes[2 * k * u + j] * coupling[2 * u + s];
            mixture[j] = sum;
        }
}
