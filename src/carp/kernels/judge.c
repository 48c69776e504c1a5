/* Balances of pairs from ready viewpoints and aspects: Equations 3 to 9 of the paper with Algorithm 1, LANES pairs at a
   time, one in each lane. The votes of so many pairs stay in a core's cache, and each iteration of the routing reads
   them once. Compiled on the machine it runs on; score_cpu.py has the same in torch where there is no compiler.

   A user's viewpoints folded into the vote weights, once, halve what each of their pairs costs:

       W₁(v_x − a_y) + W₂(v_x ⊙ a_y) = (W₂ diag(v_x) − W₁) a_y + W₁ v_x */

#include <stddef.h>

#include "capsules.h"

#define FOLD_FROM 10 /* pairs of one user: with fewer, lanes left empty would cost more than folding saves */
#define MODERATE 40  /* agreements whose powers, and products of them, single precision holds */
#define TOGETHER 5   /* logic units heard at once, so that their sums do not wait for each other */
/* One iteration's mixture, but for the normalisation by `sum`, from `count` logic units: their agreement, coupling and
   what they tell, while their votes are in the nearest cache. Up to what the normalisation takes away, bi-agreement's
   coupling is e^b_s / √Σ_s e^b_s; the softmax over the capsules alone is e^b_s / Σ_s e^b_s. */
INLINE void hear(int count, const lanes *votes, long k, int bi_agreement, const lanes *heard, lanes *mixture,
                 lanes *sum, lanes *strongest) {
    lanes weight[2][TOGETHER];
    for (int s = 0; s < 2; s++) {
        UNROLL for (int i = 0; i < count; i++) weight[s][i] = (lanes){0};
        for (long j = s * k; j < (s + 1) * k; j++)
            UNROLL for (int i = 0; i < count; i++) weight[s][i] += votes[2 * k * i + j] * heard[j];
    }
    UNROLL for (int i = 0; i < count; i++) {
        for (int s = 0; s < 2; s++) *strongest = larger(*strongest, larger(weight[s][i], -weight[s][i]));
        const lanes one = moderate_power(weight[0][i]), two = moderate_power(weight[1][i]);
        const lanes share = 1 / (bi_agreement ? root(one + two) : one + two);
        sum[0] += weight[0][i] = one * share;
        sum[1] += weight[1][i] = two * share;
    }
    for (int s = 0; s < 2; s++)
        for (long j = s * k; j < (s + 1) * k; j++) {
            lanes told = mixture[j];
            UNROLL for (int i = 0; i < count; i++) told += votes[2 * k * i + j] * weight[s][i];
            mixture[j] = told;
        }
}

/* Whether all agreements were moderate, else the mixture is not to be used. */
static int mix(const judge_weights *w, const lanes *votes, const lanes *heard, lanes *mixture) {
    const long units = w->m * w->m, k = w->k;
    lanes sum[2] = {{0}, {0}}, strongest = {0};
    long u = 0;
    for (long r = 0; r < 2 * k; r++) mixture[r] = (lanes){0};
    for (; u + TOGETHER <= units; u += TOGETHER)
        hear(TOGETHER, votes + 2 * k * u, k, w->bi_agreement, heard, mixture, sum, &strongest);
    for (; u < units; u++) hear(1, votes + 2 * k * u, k, w->bi_agreement, heard, mixture, sum, &strongest);
    for (int s = 0; s < 2 && w->bi_agreement; s++) {
        sum[s] = 1 / sum[s];
        for (long j = s * k; j < (s + 1) * k; j++) mixture[j] *= sum[s];
    }
    for (int l = 0; l < LANES; l++)
        if (!(strongest[l] < MODERATE)) return 0;
    return 1;
}

/* Algorithm 1 after its first iteration, whose mixture is the mean of the votes: b = t · Σ o over the iterations. */
static void route(const judge_weights *w, const lanes *votes, lanes *mixture) {
    const long k = w->k;
    lanes heard[2 * k], coupling[2 * w->m * w->m];
    for (long r = 0; r < 2 * k; r++) heard[r] = (lanes){0};
    for (long i = 1;; i++) {
        for (int s = 0; s < 2; s++) squash(mixture + s * k, w->capsule_bias ? w->capsule_bias + s * k : 0, k);
        if (i == w->iterations) return;
        for (long r = 0; r < 2 * k; r++) heard[r] += mixture[r];
        if (!mix(w, votes, heard, mixture)) mix_carefully(w, votes, heard, mixture, coupling, NULL);
    }
}

/* Equations 7 to 9 for one capsule, times its length. With e = e^-z and f = e^2y, gate and changed vector share one
   division: σ(z) c + (1 − σ(z)) tanh(y) = (c (1 + f) + e (f − 1)) / ((1 + e)(1 + f)). */
static lanes rate(const judge_weights *w, int s, const lanes *capsule) {
    const long k = w->k;
    lanes hidden[2 * k], degree = all(w->regression_bias[s]);
    const matrix by = {w->highway + s * 2 * k * k, w->highway_bias + s * 2 * k, 2 * k, k};
    product(by, capsule, 2 * k, hidden, NULL);
    for (long j = 0; j < k; j++) {
        const lanes e = moderate_power(within(-hidden[j], MODERATE));
        const lanes f = moderate_power(within(2 * hidden[k + j], MODERATE));
        degree += w->regression[s * k + j] * ((capsule[j] * (1 + f) + e * (f - 1)) / ((1 + e) * (1 + f)));
    }
    return degree * root(square_of(capsule, k) + 1e-12f);
}

/* Numbered rows [M · g] turned so that each is a lane; beyond `count` the first one is repeated. */
static void gather(const float *sides, const long *numbers, const long *places, long count, long width, lanes *out) {
    const float *rows[LANES];
    for (long l = 0; l < LANES; l++) rows[l] = sides + numbers[places[l < count ? l : 0]] * width;
    turn(rows, width, out);
}

/* One user's viewpoints [M, g] as matrices [M · M, g, wide] from aspects to votes, and their start [M · M, wide]. */
static void fold(const judge_weights *w, const float *v, float *restrict matrices, float *restrict start) {
    const long wide = w->wide, g = w->g;
    for (long u = 0; u < w->m * w->m; u++, matrices += g * wide, start += wide) {
        const float *difference = w->votes + u * 2 * g * wide, *both = difference + g * wide, *x = v + u / w->m * g;
        for (long r = 0; r < wide; r += LANES) {
            lanes sum = {0};
            for (long j = 0; j < g; j++) {
                const lanes one = load(difference + j * wide + r);
                *(loose *)(matrices + j * wide + r) = load(both + j * wide + r) * x[j] - one;
                sum += one * x[j];
            }
            *(loose *)(start + r) = sum;
        }
    }
}

typedef struct {
    const judge_weights *w;
    const float *users, *items; /* [., M, g] */
    const long *user, *item;    /* of each pair */
    float *balance;             /* of each pair */
    lanes *v, *a, *units, *votes;
    float *matrices, *start;
} work;

static void judge(const work *at, const long *places, long count, lanes *mixture) {
    const long rows = 2 * at->w->k, units = at->w->m * at->w->m;
    const float alike = at->w->bi_agreement ? 1.0f / units : 0.5f;
    for (long r = 0; r < rows; r++) mixture[r] *= alike;
    route(at->w, at->votes, mixture);
    const lanes found = rate(at->w, 0, mixture) - rate(at->w, 1, mixture + at->w->k);
    for (long l = 0; l < count; l++) at->balance[places[l]] = found[l];
}

/* Pairs of the user whose viewpoints were folded: the first of `left`, whose next ones are sent for. */
static void judge_folded(const work *at, const long *places, long count, long left) {
    const long rows = 2 * at->w->k, m = at->w->m, g = at->w->g, wide = at->w->wide;
    lanes mixture[rows];
    gather(at->items, at->item, places, count, m * g, at->a);
    for (long l = LANES; l < left && l < 2 * LANES; l++)
        for (long j = 0; j < m * g; j += LANES) __builtin_prefetch(at->items + at->item[places[l]] * m * g + j);
    for (long r = 0; r < rows; r++) mixture[r] = (lanes){0};
    for (long u = 0; u < m * m; u++) {
        const matrix by = {at->matrices + u * g * wide, at->start + u * wide, wide, g};
        product(by, at->a + u % m * g, rows, at->votes + u * rows, mixture);
    }
    judge(at, places, count, mixture);
}

/* Pairs of any users. */
static void judge_any(const work *at, const long *places, long count) {
    const long rows = 2 * at->w->k, m = at->w->m, g = at->w->g, wide = at->w->wide;
    lanes mixture[rows];
    gather(at->users, at->user, places, count, m * g, at->v);
    gather(at->items, at->item, places, count, m * g, at->a);
    for (long r = 0; r < rows; r++) mixture[r] = (lanes){0};
    for (long u = 0; u < m * m; u++) {
        const lanes *x = at->v + u / m * g, *y = at->a + u % m * g;
        for (long j = 0; j < g; j++) {
            at->units[j] = x[j] - y[j];
            at->units[g + j] = x[j] * y[j];
        }
        const matrix by = {at->w->votes + u * 2 * g * wide, NULL, wide, 2 * g};
        product(by, at->units, rows, at->votes + u * rows, mixture);
    }
    judge(at, places, count, mixture);
}

/* Numbers that carp_score needs room for, one of them to reach a whole vector's address. */
long carp_score_room(const judge_weights *w) {
    const long m = w->m, g = w->g, rows = 2 * w->k;
    return (2 * m * g + 2 * g + m * m * rows + 1) * LANES + m * m * (g + 1) * w->wide;
}

/* Balances of the pairs at `order`, best one user's after the other's; the few of a user wait for those of others. */
void carp_score(const judge_weights *w, const float *users, const float *items, const long *user, const long *item,
                const long *order, long count, float *room, float *balance) {
    const long m = w->m, g = w->g, rows = 2 * w->k;
    lanes *v = (lanes *)(((size_t)room + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes));
    lanes *votes = v + 2 * m * g + 2 * g;
    float *matrices = (float *)(votes + m * m * rows);
    const work at = {w, users, items, user, item, balance, v, v + m * g, v + 2 * m * g, votes, matrices,
                     matrices + m * m * g * w->wide};
    long waiting[LANES], few = 0;
    for (long first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && user[order[last]] == user[order[first]];) last++;
        if (last - first >= FOLD_FROM) fold(w, users + user[order[first]] * m * g, at.matrices, at.start);
        for (; last - first >= FOLD_FROM; first += LANES)
            judge_folded(&at, order + first, last - first < LANES ? last - first : LANES, count - first);
        for (; first < last; first++) {
            waiting[few++] = order[first];
            if (few == LANES) judge_any(&at, waiting, few), few = 0;
        }
    }
    if (few) judge_any(&at, waiting, few);
}

/* The places of the pairs one user's after the other's, each user's in the order given. starts [users + 1]. */
void carp_group(const long *user, long count, long users, long *starts, long *order) {
    for (long u = 0; u <= users; u++) starts[u] = 0;
    for (long p = 0; p < count; p++) starts[user[p] + 1]++;
    for (long u = 0; u < users; u++) starts[u + 1] += starts[u];
    for (long p = 0; p < count; p++) order[starts[user[p]]++] = p;
}
