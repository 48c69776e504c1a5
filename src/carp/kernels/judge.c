/* From votes to the balance of the two sentiments: Algorithm 1 and Equations 5 to 9 of the paper, for blocks of pairs.

   The pairs lie along the last axis; LANES of them make one vector, and what a vector of pairs needs stays in the
   nearest caches through all iterations of the routing. Compiled on the machine it runs on; score_cpu.py has the same
   in torch where there is no compiler. */

#include "lanes.h"

#define PAIRS (2 * LANES)
#define TILE 10 /* rows whose sums lie in registers */

typedef struct {
    long units, size, iterations; /* U, k, τ */
    int bi_agreement, reversed;
    const float *capsule_bias;                 /* [2, k] or null */
    const float *gate, *gate_bias;             /* H_1 [2, k, k], [2, k] */
    const float *highway, *highway_bias;       /* H_2 */
    const float *regression, *regression_bias; /* [2, k], [2] */
} judge_weights;

static void squash(lanes *mixture, const float *bias, long k) {
    lanes square = {0};
    for (long j = 0; j < k; j++) {
        if (bias) mixture[j] += bias[j];
        square += mixture[j] * mixture[j];
    }
    const lanes shorter = square / ((1 + square) * root(square + 1e-12f));
    for (long j = 0; j < k; j++) mixture[j] *= shorter;
}

/* Coupling from agreement, both [U, 2]: see bi_agreement and by_agreement in models/carp.py. */
static void couple(lanes *b, long units, int bi_agreement) {
    lanes top[2] = {b[0], b[1]}, sum[2] = {{0}, {0}};
    for (long u = 1; u < units; u++)
        for (int s = 0; s < 2; s++) top[s] = larger(b[2 * u + s], top[s]);
    for (long u = 0; u < units; u++) {
        const lanes one = b[2 * u], two = b[2 * u + 1];
        const lanes apart = power(two - one), share = 1 / (1 + apart), rest = apart * share;
        b[2 * u] = bi_agreement ? power(0.5f * (one - top[0])) * root(share) : share;
        b[2 * u + 1] = bi_agreement ? power(0.5f * (two - top[1])) * root(rest) : rest;
        sum[0] += b[2 * u];
        sum[1] += b[2 * u + 1];
    }
    if (!bi_agreement) return;
    for (int s = 0; s < 2; s++) sum[s] = 1 / sum[s];
    for (long u = 0; u < units; u++)
        for (int s = 0; s < 2; s++) b[2 * u + s] *= sum[s];
}

/* Σ_u c_u t_u of five rows at once, so that their sums do not wait for each other. */
static void mix(const float *votes, long stride, const lanes *coupling, long units, long rows, long s, long k, lanes *out) {
    long j = 0;
    for (; j + 5 <= k; j += 5) {
        lanes sum[5] = {{0}, {0}, {0}, {0}, {0}};
        for (long u = 0; u < units; u++) {
            const float *t = votes + (u * rows + s * k + j) * stride;
            for (int i = 0; i < 5; i++) sum[i] += load(t + i * stride) * coupling[2 * u + s];
        }
        for (int i = 0; i < 5; i++) out[s * k + j + i] = sum[i];
    }
    for (; j < k; j++) {
        lanes sum = {0};
        for (long u = 0; u < units; u++) sum += load(votes + (u * rows + s * k + j) * stride) * coupling[2 * u + s];
        out[s * k + j] = sum;
    }
}

static lanes dot(const float *votes, long stride, const lanes *heard, long k) {
    lanes sum[4] = {{0}, {0}, {0}, {0}};
    long j = 0;
    for (; j + 4 <= k; j += 4)
        for (int i = 0; i < 4; i++) sum[i] += load(votes + (j + i) * stride) * heard[j + i];
    for (; j < k; j++) sum[0] += load(votes + j * stride) * heard[j];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void route(const judge_weights *w, const float *votes, long stride, lanes *mixture) {
    const long k = w->size, units = w->units, rows = 2 * k;
    lanes heard[rows], coupling[2 * units];
    for (long r = 0; r < rows; r++) heard[r] = (lanes){0};
    for (long u = 0; u < 2 * units; u++) coupling[u] = all(w->bi_agreement ? 1.0f / units : 0.5f);
    for (long i = 0;; i++) {
        for (int s = 0; s < 2; s++) {
            mix(votes, stride, coupling, units, rows, s, k, mixture);
            squash(mixture + s * k, w->capsule_bias ? w->capsule_bias + s * k : 0, k);
        }
        if (i + 1 == w->iterations) return;
        for (long r = 0; r < rows; r++) heard[r] += mixture[r]; /* b = t · Σ o over the iterations */
        for (long u = 0; u < units; u++)
            for (int s = 0; s < 2; s++)
                coupling[2 * u + s] = dot(votes + (u * rows + s * k) * stride, stride, heard + s * k, k);
        couple(coupling, units, w->bi_agreement);
    }
}

/* Equations 7 to 9 for one capsule, times its length. */
static lanes rate(const judge_weights *w, int s, const lanes *capsule) {
    const long k = w->size;
    lanes square = {0}, degree = all(w->regression_bias[s]);
    for (long j = 0; j < k; j++) {
        const float *h1 = w->gate + (s * k + j) * k, *h2 = w->highway + (s * k + j) * k;
        lanes one = all(w->gate_bias[s * k + j]), two = all(w->highway_bias[s * k + j]);
        for (long i = 0; i < k; i++) {
            one += h1[i] * capsule[i];
            two += h2[i] * capsule[i];
        }
        const lanes gate = 1 / (1 + power(w->reversed ? one : -one));
        const lanes changed = 1 - 2 / (1 + power(2 * two));
        degree += w->regression[s * k + j] * (changed + gate * (capsule[j] - changed));
        square += capsule[j] * capsule[j];
    }
    return degree * root(square + 1e-12f);
}

/* votes [U, 2, k, count], count a multiple of LANES; balance [count]. */
void carp_judge(const judge_weights *w, const float *votes, long count, float *balance) {
    lanes capsules[2 * w->size];
    for (long first = 0; first < count; first += LANES) {
        route(w, votes + first, count, capsules);
        *(loose *)(balance + first) = rate(w, 0, capsules) - rate(w, 1, capsules + w->size);
    }
}

/* Sides of PAIRS numbered rows [M · g] turned so that the pairs are lanes; a number beyond `count` is the first. */
static void turn(const float *sides, const long *numbers, long count, long width, float *out) {
    for (long l = 0; l < PAIRS; l++) {
        const float *row = sides + numbers[l < count ? l : 0] * width;
        for (long j = 0; j < width; j++) out[j * PAIRS + l] = row[j];
    }
}

/* Votes of one logic unit for PAIRS pairs: weights [tiles, 2g, TILE] times units [2g, PAIRS]. */
static void vote(const float *weights, const float *units, long depth, long rows, float *votes) {
    for (long first = 0; first < rows; first += TILE, weights += depth * TILE) {
        lanes sum[TILE][2];
        for (int r = 0; r < TILE; r++) sum[r][0] = sum[r][1] = (lanes){0};
        for (long g = 0; g < depth; g++) {
            const lanes one = load(units + g * PAIRS), two = load(units + g * PAIRS + LANES);
            for (int r = 0; r < TILE; r++) {
                sum[r][0] += weights[g * TILE + r] * one;
                sum[r][1] += weights[g * TILE + r] * two;
            }
        }
        for (int r = 0; r < TILE && first + r < rows; r++)
            for (int h = 0; h < 2; h++) *(loose *)(votes + (first + r) * PAIRS + h * LANES) = sum[r][h];
    }
}

/* Balances of numbered pairs. users [., M, g], items [., M, g]; vote_weights [M · M, tiles, 2g, TILE], the difference's
   part first; room for (2 M g + 2 g + M M 2 k) · PAIRS numbers. */
void carp_score(const judge_weights *w, const float *vote_weights, const float *users, const float *items,
                const long *user, const long *item, long count, long m, long g, float *room, float *balance) {
    const long rows = 2 * w->size, tiles = (rows + TILE - 1) / TILE;
    float *v = room, *a = v + m * g * PAIRS, *units = a + m * g * PAIRS, *votes = units + 2 * g * PAIRS;
    lanes capsules[rows];
    for (long first = 0; first < count; first += PAIRS) {
        const long left = count - first < PAIRS ? count - first : PAIRS;
        turn(users, user + first, left, m * g, v);
        turn(items, item + first, left, m * g, a);
        for (long u = 0; u < m * m; u++) {
            const float *x = v + u / m * g * PAIRS, *y = a + u % m * g * PAIRS;
            for (long j = 0; j < g * PAIRS; j++) {
                units[j] = x[j] - y[j];
                units[g * PAIRS + j] = x[j] * y[j];
            }
            vote(vote_weights + u * tiles * 2 * g * TILE, units, 2 * g, rows, votes + u * rows * PAIRS);
        }
        for (long h = 0; h < PAIRS; h += LANES) {
            route(w, votes + h, PAIRS, capsules);
            const lanes found = rate(w, 0, capsules) - rate(w, 1, capsules + w->size);
            for (long l = 0; l < LANES && h + l < left; l++) balance[first + h + l] = found[l];
        }
    }
}
