/* Pairs forward to the balance and the lengths of their capsules, and backward to the gradients of both sides and of all
   weights in between, LANES pairs at a time, one in each lane: what autograd does with Carp.judge, through every
   iteration of the routing. pair_gradients.py calls it. */

#include <stddef.h>
#include <stdlib.h>

#include "capsules.h"

typedef struct {
    judge_weights forward;
    const float *votes;   /* [M · M, 2k, 2g] */
    const float *highway; /* [2, 2k, k] */
} pair_weights;

typedef struct {
    float *votes, *highway;           /* [M · M, 2g, wide], [2, k, wide] */
    float *highway_bias, *regression; /* [2, 2k], [2, k] */
    float *regression_bias, *capsule_bias;
} gradients;

/* What going backward needs of LANES pairs. */
typedef struct {
    lanes *v, *a;              /* [M, g] */
    lanes *votes;              /* [M · M, 2k] */
    lanes *coupling, *between; /* [τ − 1, M · M, 2] and [τ − 1, M · M] of the iterations after the first */
    lanes *mixture, *heard;    /* [τ, 2k], [τ − 1, 2k]: b = t · Σ o over the iterations */
    lanes *capsules;           /* [2k] */
    lanes *passed;             /* [2, 2k], gate and changed vector */
    lanes *degree, *length;    /* [2] */
    lanes *end;
} trace;

static trace lay_out(const judge_weights *w, lanes *at) {
    const long side = w->m * w->g, units = w->m * w->m, rows = 2 * w->k, after = w->iterations - 1;
    trace t = {.v = at, .a = at + side, .votes = at + 2 * side};
    t.coupling = t.votes + units * rows;
    t.between = t.coupling + after * 2 * units;
    t.mixture = t.between + after * units;
    t.heard = t.mixture + w->iterations * rows;
    t.capsules = t.heard + after * rows;
    t.passed = t.capsules + rows;
    t.degree = t.passed + 2 * rows;
    t.length = t.degree + 2;
    t.end = t.length + 2;
    return t;
}

/* Numbers to keep of LANES pairs: where `lay_out` ends; -1 where the vectors would be too long. */
long carp_pair_room(const pair_weights *weights) {
    const judge_weights *w = &weights->forward;
    const long units = w->m * w->m, rows = 2 * w->k, after = w->iterations - 1;
    if (!short_enough(w)) return -1;
    return (2 * w->m * w->g + units * rows + 3 * after * units + (w->iterations + after + 3) * rows + 4) * LANES;
}

static float total(lanes x) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += x[l];
    return sum;
}

static lanes dot(const lanes *a, const lanes *b, long k) {
    lanes one = {0}, two = {0};
    long j = 0;
    for (; j + 2 <= k; j += 2) one += a[j] * b[j], two += a[j + 1] * b[j + 1];
    return j < k ? one + two + a[j] * b[j] : one + two;
}

/* ---- forward */

/* `count` rows [width] turned so that each is a lane; beyond them the first one is repeated. */
static void take(const float *sides, long count, long width, lanes *out) {
    const float *rows[LANES];
    for (long l = 0; l < LANES; l++) rows[l] = sides + (l < count ? l : 0) * width;
    turn(rows, width, out);
}

/* A logic unit: difference and product of a viewpoint and an aspect. [2g] */
static void meet(const judge_weights *w, const trace *t, long u, lanes *unit) {
    const lanes *x = t->v + u / w->m * w->g, *y = t->a + u % w->m * w->g;
    for (long j = 0; j < w->g; j++) {
        unit[j] = x[j] - y[j];
        unit[w->g + j] = x[j] * y[j];
    }
}

static float alike(const judge_weights *w) { return w->bi_agreement ? 1.0f / (w->m * w->m) : 0.5f; }

static void route(const judge_weights *w, const trace *t, lanes *share) {
    const long k = w->k, rows = 2 * k, units = w->m * w->m;
    lanes unit[2 * w->g];
    for (long r = 0; r < rows; r++) t->mixture[r] = (lanes){0};
    for (long u = 0; u < units; u++) {
        const matrix by = {w->votes + u * 2 * w->g * w->wide, NULL, w->wide, 2 * w->g};
        meet(w, t, u, unit);
        product(by, unit, rows, t->votes + u * rows, t->mixture);
    }
    for (long r = 0; r < rows; r++) t->mixture[r] *= alike(w);
    for (long i = 0;; i++) {
        lanes *mixture = t->mixture + i * rows, *heard = t->heard + i * rows;
        for (long r = 0; r < rows; r++) {
            if (w->capsule_bias) mixture[r] += w->capsule_bias[r];
            t->capsules[r] = mixture[r];
        }
        for (int s = 0; s < 2; s++) squash(t->capsules + s * k, NULL, k);
        if (i + 1 == w->iterations) return;
        for (long r = 0; r < rows; r++) heard[r] = i ? heard[r - rows] + t->capsules[r] : t->capsules[r];
        mix_carefully(w, t->votes, heard, mixture + rows, t->coupling + i * 2 * units, t->between + i * units, share);
    }
}

/* Equations 7 to 9. */
static void rate(const judge_weights *w, const trace *t, int s) {
    const long k = w->k;
    const lanes *capsule = t->capsules + s * k;
    lanes *gate = t->passed + s * 2 * k, *changed = gate + k, degree = all(w->regression_bias[s]);
    const matrix by = {w->highway + s * 2 * k * k, w->highway_bias + s * 2 * k, 2 * k, k};
    product(by, capsule, 2 * k, gate, NULL);
    for (long j = 0; j < k; j++) {
        gate[j] = 1 / (1 + power(-gate[j]));
        changed[j] = 1 - 2 / (1 + power(2 * changed[j]));
        degree += w->regression[s * k + j] * (changed[j] + gate[j] * (capsule[j] - changed[j]));
    }
    t->degree[s] = degree;
    t->length[s] = root(square_of(capsule, k) + 1e-12f);
}

static lanes *room_for(long vectors) { return aligned_alloc(sizeof(lanes), vectors * sizeof(lanes)); }

/* viewpoints, aspects [count, M, g]; room for every LANES pairs, at a whole vector's address; lengths [count, 2]. Gives 2
   back, having done nothing, where there is no memory. */
long carp_pair_forward(const pair_weights *weights, const float *viewpoints, const float *aspects, long count,
                     float *room, float *balance, float *lengths) {
    const judge_weights *w = &weights->forward;
    const long side = w->m * w->g;
    lanes *at = (lanes *)room, *share = short_enough(w) ? room_for(w->m * w->m) : NULL;
    if (!share) return short_enough(w) ? 2 : 1;
    for (long first = 0; first < count; first += LANES) {
        const long left = count - first < LANES ? count - first : LANES;
        const trace t = lay_out(w, at);
        take(viewpoints + first * side, left, side, t.v);
        take(aspects + first * side, left, side, t.a);
        route(w, &t, share);
        for (int s = 0; s < 2; s++) rate(w, &t, s);
        const lanes found = t.degree[0] * t.length[0] - t.degree[1] * t.length[1];
        for (long l = 0; l < left; l++) {
            balance[first + l] = found[l];
            for (int s = 0; s < 2; s++) lengths[2 * (first + l) + s] = t.length[s][l];
        }
        at = t.end;
    }
    free(share);
    return 0;
}

/* ---- backward */

/* The gradient of one capsule [k] from those of its part of the balance and of its length. */
static void rate_back(const pair_weights *weights, const trace *t, int s, lanes d_part, lanes d_length,
                      const gradients *grads, lanes *d_capsule) {
    const judge_weights *w = &weights->forward;
    const long k = w->k;
    const lanes *capsule = t->capsules + s * k, *gate = t->passed + s * 2 * k, *changed = gate + k;
    const lanes d_degree = d_part * t->length[s], along = (d_length + d_part * t->degree[s]) / t->length[s];
    lanes d_hidden[2 * k], straight[k];
    for (long j = 0; j < k; j++) {
        const lanes apart = capsule[j] - changed[j], d_out = d_degree * w->regression[s * k + j];
        grads->regression[s * k + j] += total(d_degree * (changed[j] + gate[j] * apart));
        d_hidden[j] = d_out * apart * gate[j] * (1 - gate[j]);
        d_hidden[k + j] = d_out * (1 - gate[j]) * (1 - changed[j] * changed[j]);
        d_capsule[j] = d_out * gate[j] + along * capsule[j];
    }
    for (long j = 0; j < 2 * k; j++) grads->highway_bias[s * 2 * k + j] += total(d_hidden[j]);
    grads->regression_bias[s] += total(d_degree);
    contract(capsule, k, d_hidden, 2 * k, w->wide, grads->highway + s * k * w->wide);
    const matrix by = {weights->highway + s * 2 * k * k, NULL, k, 2 * k};
    product(by, d_hidden, k, straight, d_capsule);
}

/* With q = m · m and r = √(q + ε), the capsule is f m with f = q / ((1 + q) r). */
static void squash_back(const lanes *mixture, const lanes *d_capsule, long k, lanes *d_mixture) {
    const lanes q = square_of(mixture, k), r = root(q + 1e-12f), shorter = q / (1 + q) / r;
    const lanes slope = 1 / (1 + q) / (1 + q) / r - 0.5f * shorter / r / r;
    const lanes along = 2 * slope * dot(mixture, d_capsule, k);
    for (long j = 0; j < k; j++) d_mixture[j] = shorter * d_capsule[j] + along * mixture[j];
}

/* From the mixture after coupling i back to the agreements [M · M, 2] before it; what was heard gets its part [2k]. */
static void agree_back(const judge_weights *w, const trace *t, long i, const lanes *d_mixture, lanes *d_agreement,
                       lanes *d_heard) {
    const long k = w->k, units = w->m * w->m;
    const lanes *coupling = t->coupling + i * 2 * units, *between = t->between + i * units;
    lanes mean[2]; /* Σ_u c_u (t_u · d) is the mixture times d, before the bias */
    for (int s = 0; s < 2; s++) {
        const lanes *d = d_mixture + s * k, *mixture = t->mixture + (i + 1) * 2 * k + s * k;
        mean[s] = dot(mixture, d, k);
        for (long j = 0; j < k && w->capsule_bias; j++) mean[s] -= w->capsule_bias[s * k + j] * d[j];
    }
    for (long u = 0; u < units; u++) {
        const lanes *votes = t->votes + u * 2 * k;
        lanes d[2];
        for (int s = 0; s < 2; s++) {
            d[s] = dot(votes + s * k, d_mixture + s * k, k);
            d[s] = coupling[2 * u + s] * (w->bi_agreement ? d[s] - mean[s] : d[s]);
        }
        const lanes both = (d[0] + d[1]) * (w->bi_agreement ? 0.5f : 1.0f);
        d_agreement[2 * u] = d[0] - between[u] * both;
        d_agreement[2 * u + 1] = d[1] - (1 - between[u]) * both;
        for (int s = 0; s < 2; s++)
            for (long j = s * k; j < (s + 1) * k; j++) d_heard[j] += votes[j] * d_agreement[2 * u + s];
    }
}

/* d_mixture [τ, 2k] and d_agreement [τ − 1, M · M, 2] from the gradient of the capsules. */
static void route_back(const judge_weights *w, const trace *t, const lanes *d_capsules, const gradients *grads,
                       lanes *d_mixture, lanes *d_agreement) {
    const long k = w->k, rows = 2 * k;
    lanes d_heard[rows];
    for (long r = 0; r < rows; r++) d_heard[r] = (lanes){0};
    for (long i = w->iterations - 1; i >= 0; i--) {
        const lanes *d = i + 1 == w->iterations ? d_capsules : d_heard;
        lanes *found = d_mixture + i * rows;
        for (int s = 0; s < 2; s++) squash_back(t->mixture + i * rows + s * k, d + s * k, k, found + s * k);
        for (long r = 0; r < rows && w->capsule_bias; r++) grads->capsule_bias[r] += total(found[r]);
        if (i) agree_back(w, t, i - 1, found, d_agreement + (i - 1) * 2 * w->m * w->m, d_heard);
    }
}

/* The gradient [k] of what a logic unit tells a capsule: it mixed in every iteration, and agreed after the first. */
static void vote_back(const judge_weights *w, const trace *t, const lanes *d_mixture, const lanes *d_agreement, long u,
                      int s, lanes *d_vote) {
    const long k = w->k, units = w->m * w->m;
    const float first = alike(w);
    for (long j = 0; j < k; j++) d_vote[j] = first * d_mixture[j];
    for (long i = 0; i + 1 < w->iterations; i++) {
        const lanes coupling = t->coupling[2 * (i * units + u) + s], agreement = d_agreement[2 * (i * units + u) + s];
        const lanes *d = d_mixture + (i + 1) * 2 * k, *heard = t->heard + i * 2 * k + s * k;
        for (long j = 0; j < k; j++) d_vote[j] += coupling * d[j] + agreement * heard[j];
    }
}

static void votes_back(const pair_weights *weights, const trace *t, const lanes *d_mixture, const lanes *d_agreement,
                       const gradients *grads, lanes *d_v, lanes *d_a) {
    const judge_weights *w = &weights->forward;
    const long m = w->m, g = w->g, k = w->k, rows = 2 * k, units = m * m;
    lanes unit[2 * g], d_unit[2 * g], d_votes[rows];
    for (long j = 0; j < m * g; j++) d_v[j] = d_a[j] = (lanes){0};
    for (long u = 0; u < units; u++) {
        for (int s = 0; s < 2; s++) vote_back(w, t, d_mixture + s * k, d_agreement, u, s, d_votes + s * k);
        meet(w, t, u, unit);
        contract(unit, 2 * g, d_votes, rows, w->wide, grads->votes + u * 2 * g * w->wide);
        product((matrix){weights->votes + u * rows * 2 * g, NULL, 2 * g, rows}, d_votes, 2 * g, d_unit, NULL);
        const long x = u / m * g, y = u % m * g;
        for (long j = 0; j < g; j++) {
            d_v[x + j] += d_unit[j] + t->a[y + j] * d_unit[g + j];
            d_a[y + j] += t->v[x + j] * d_unit[g + j] - d_unit[j];
        }
    }
}

/* After carp_pair_forward, in the same room: d_viewpoints, d_aspects [count, M, g]; the weights' are added to `grads`. */
long carp_pair_back(const pair_weights *weights, const float *d_balance, const float *d_lengths, long count,
                    float *room, float *d_viewpoints, float *d_aspects, const gradients *grads) {
    const judge_weights *w = &weights->forward;
    const long side = w->m * w->g, rows = 2 * w->k, agreements = w->iterations * 2 * w->m * w->m;
    if (!short_enough(w)) return 1;
    lanes *d_capsules = room_for(rows + w->iterations * rows + agreements + 2 * side), *at = (lanes *)room;
    if (!d_capsules) return 2;
    lanes *d_mixture = d_capsules + rows, *d_agreement = d_mixture + w->iterations * rows;
    lanes *d_v = d_agreement + agreements, *d_a = d_v + side;
    for (long first = 0; first < count; first += LANES) {
        const trace t = lay_out(w, at);
        for (int s = 0; s < 2; s++) {
            lanes d_part = {0}, d_length = {0}; /* nothing for lanes beyond the last pair */
            for (long l = 0; l < LANES && first + l < count; l++) {
                d_part[l] = s ? -d_balance[first + l] : d_balance[first + l];
                d_length[l] = d_lengths[2 * (first + l) + s];
            }
            rate_back(weights, &t, s, d_part, d_length, grads, d_capsules + s * w->k);
        }
        route_back(w, &t, d_capsules, grads, d_mixture, d_agreement);
        votes_back(weights, &t, d_mixture, d_agreement, grads, d_v, d_a);
        for (long l = 0; l < LANES && first + l < count; l++)
            for (long j = 0; j < side; j++) {
                d_viewpoints[(first + l) * side + j] = ((float *)(d_v + j))[l];
                d_aspects[(first + l) * side + j] = ((float *)(d_a + j))[l];
            }
        at = t.end;
    }
    free(d_capsules);
    return 0;
}
