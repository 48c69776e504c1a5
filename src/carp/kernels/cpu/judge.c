/* Balances of pairs from ready viewpoints and aspects: Equations 3 to 9 of the paper with Algorithm 1, LANES pairs at a
   time, one in each lane. The votes of so many pairs stay in a core's cache, and each iteration of the routing reads
   them once. pair_scores.py has the same in torch for where there is no compiler.

   A user's viewpoints, or an item's aspects, folded into the vote weights halve what each of their pairs costs:

       W₁(v_x − a_y) + W₂(v_x ⊙ a_y) = (W₂ diag(v_x) − W₁) a_y + W₁ v_x = (W₂ diag(a_y) + W₁) v_x − W₁ a_y */

#include <stddef.h>

#include "capsules.h"
#include "checks.h"

/* Pairs with one side in common: with fewer, lanes left empty would cost more than folding saves. Never more than LANES,
   so that cutting a user's items at whole vectors changes no digit. */
#define FOLD_FROM ((5 * LANES + 7) / 8)
#define MODERATE 40 /* agreements whose powers, and products of them, single precision holds */
#define TOGETHER 5  /* logic units heard at once, so that their sums do not wait for each other */

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

/* Algorithm 1 after its first iteration, whose mixture is the mean of the votes: b = t · Σ o over the iterations.
   `coupling` is room for [M · M, 3]. */
static void route(const judge_weights *w, const lanes *votes, lanes *mixture, lanes *coupling) {
    const long k = w->k;
    lanes heard[2 * k], *share = coupling + 2 * w->m * w->m;
    for (long r = 0; r < 2 * k; r++) heard[r] = (lanes){0};
    for (long i = 1;; i++) {
        for (int s = 0; s < 2; s++) squash(mixture + s * k, w->capsule_bias ? w->capsule_bias + s * k : 0, k);
        if (i == w->iterations) return;
        for (long r = 0; r < 2 * k; r++) heard[r] += mixture[r];
        if (!mix(w, votes, heard, mixture)) mix_carefully(w, votes, heard, mixture, coupling, NULL, share);
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

typedef struct {
    const judge_weights *w;
    const float *sides[2];   /* of users and items, [., M, g] */
    const long *numbers[2];  /* of each pair */
    float *balance;          /* of each pair */
    int folded;              /* which of the two sides is */
    lanes *turned[2], *unit, *votes, *coupling;
    float *matrices, *start; /* [M · M, g, wide] from the other side to votes, and the votes' start [M · M, wide] */
} work;

/* Which of a side's vectors takes part in logic unit u. */
static long vector_of(int side, long u, long m) { return side ? u % m : u / m; }

static void fold(const work *at, long number) {
    const long m = at->w->m, g = at->w->g, wide = at->w->wide;
    const float *vectors = at->sides[at->folded] + number * m * g, sign = at->folded ? 1 : -1;
    for (long u = 0; u < m * m; u++) {
        const float *difference = at->w->votes + u * 2 * g * wide, *both = difference + g * wide;
        const float *x = vectors + vector_of(at->folded, u, m) * g;
        float *into = at->matrices + u * g * wide;
        for (long r = 0; r < wide; r += LANES) {
            lanes sum = {0};
            for (long j = 0; j < g; j++) {
                const lanes one = sign * load(difference + j * wide + r);
                *(loose *)(into + j * wide + r) = load(both + j * wide + r) * x[j] + one;
                sum -= one * x[j];
            }
            *(loose *)(at->start + u * wide + r) = sum;
        }
    }
}

/* One side [M, g] of the pairs at `places`, each in a lane; beyond `count` the first one is repeated. */
static void gather(const work *at, int side, const long *places, long count) {
    const long width = at->w->m * at->w->g;
    const float *rows[LANES];
    for (long l = 0; l < LANES; l++) rows[l] = at->sides[side] + at->numbers[side][places[l < count ? l : 0]] * width;
    turn(rows, width, at->turned[side]);
}

static void judge(const work *at, const long *places, long count, lanes *mixture) {
    const long rows = 2 * at->w->k, units = at->w->m * at->w->m;
    const float alike = at->w->bi_agreement ? 1.0f / units : 0.5f;
    for (long r = 0; r < rows; r++) mixture[r] *= alike;
    route(at->w, at->votes, mixture, at->coupling);
    const lanes found = rate(at->w, 0, mixture) - rate(at->w, 1, mixture + at->w->k);
    for (long l = 0; l < count; l++) at->balance[places[l]] = found[l];
}

/* Pairs that have what was folded in common: the first of `left`, whose next ones are sent for. */
static void judge_folded(const work *at, const long *places, long count, long left) {
    const long rows = 2 * at->w->k, m = at->w->m, g = at->w->g, wide = at->w->wide;
    const int other = !at->folded;
    lanes mixture[rows];
    gather(at, other, places, count);
    for (long l = LANES; l < left && l < 2 * LANES; l++) {
        const float *next = at->sides[other] + at->numbers[other][places[l]] * m * g;
        for (long j = 0; j < m * g; j += LANES) __builtin_prefetch(next + j);
    }
    for (long r = 0; r < rows; r++) mixture[r] = (lanes){0};
    for (long u = 0; u < m * m; u++) {
        const matrix by = {at->matrices + u * g * wide, at->start + u * wide, wide, g};
        product(by, at->turned[other] + vector_of(other, u, m) * g, rows, at->votes + u * rows, mixture);
    }
    judge(at, places, count, mixture);
}

/* Any pairs. */
static void judge_any(const work *at, const long *places, long count) {
    const long rows = 2 * at->w->k, m = at->w->m, g = at->w->g, wide = at->w->wide;
    lanes mixture[rows];
    for (int side = 0; side < 2; side++) gather(at, side, places, count);
    for (long r = 0; r < rows; r++) mixture[r] = (lanes){0};
    for (long u = 0; u < m * m; u++) {
        const lanes *x = at->turned[0] + u / m * g, *y = at->turned[1] + u % m * g;
        for (long j = 0; j < g; j++) {
            at->unit[j] = x[j] - y[j];
            at->unit[g + j] = x[j] * y[j];
        }
        const matrix by = {at->w->votes + u * 2 * g * wide, NULL, wide, 2 * g};
        product(by, at->unit, rows, at->votes + u * rows, mixture);
    }
    judge(at, places, count, mixture);
}

/* Numbers that carp_score needs room for, one of them to reach a whole vector's address; -1 where its vectors would be
   too long for it. */
long carp_score_room(const judge_weights *w) {
    const long m = w->m, g = w->g, rows = 2 * w->k;
    if (!short_enough(w)) return -1;
    return (2 * m * g + 2 * g + m * m * rows + 3 * m * m + 1) * LANES + m * m * (g + 1) * w->wide;
}

/* Balances of the pairs at `order`, in which those that have the side to be folded in common best follow each other;
   the few that have it in common with few wait for others. There are so many users, items and `pairs`. */
long carp_score(const judge_weights *w, const float *users, const float *items, const long *user, const long *item,
                long user_count, long item_count, long pairs, int folded, const long *order, long count, float *room,
                float *balance) {
    if (!short_enough(w) || !numbers_below(order, count, pairs)) return 1;
    for (long p = 0; p < count; p++)
        if (!numbers_below(user + order[p], 1, user_count) || !numbers_below(item + order[p], 1, item_count)) return 1;
    const long side = w->m * w->g, rows = 2 * w->k, *numbers = folded ? item : user;
    lanes *v = (lanes *)(((size_t)room + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes));
    lanes *unit = v + 2 * side, *votes = unit + 2 * w->g;
    lanes *coupling = votes + w->m * w->m * rows;
    float *matrices = (float *)(coupling + 3 * w->m * w->m), *start = matrices + w->m * side * w->wide;
    const work at = {w, {users, items}, {user, item}, balance, folded, {v, v + side}, unit, votes, coupling, matrices, start};
    long waiting[LANES], few = 0;
    for (long first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && numbers[order[last]] == numbers[order[first]];) last++;
        if (last - first >= FOLD_FROM) fold(&at, numbers[order[first]]);
        for (; last - first >= FOLD_FROM; first += LANES)
            judge_folded(&at, order + first, last - first < LANES ? last - first : LANES, count - first);
        for (; first < last; first++) {
            waiting[few++] = order[first];
            if (few == LANES) judge_any(&at, waiting, few), few = 0;
        }
    }
    if (few) judge_any(&at, waiting, few);
    return 0;
}

/* The places of the pairs of one number after those of another, each number's in the order given; how many numbers
   there are, or -1 if one is not among those below. starts [below + 1]. */
long carp_group(const long *numbers, long count, long below, long *starts, long *order) {
    long different = 0;
    if (!numbers_below(numbers, count, below)) return -1;
    for (long n = 0; n <= below; n++) starts[n] = 0;
    for (long p = 0; p < count; p++) different += !starts[numbers[p] + 1]++;
    for (long n = 0; n < below; n++) starts[n + 1] += starts[n];
    for (long p = 0; p < count; p++) order[starts[numbers[p]]++] = p;
    return different;
}
