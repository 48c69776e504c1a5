/* What encode.c and encode_back.c share: the parameters, the documents, and the attention. */

#include "checks.h"
#include "folds.h"

typedef struct {
    long viewpoints, filters, size, window; /* M, n, k, c */
    float scale;                            /* of the attention */
    const float *gate, *query;              /* W_1 of each viewpoint, packed [n, n]; W_2 q + b [M, n] */
    const float *project;                   /* W_p, packed [k, n] */
    const float *gate_back, *project_back;  /* W_1ᵀ, packed [n, M · n]; W_pᵀ, packed [n, k] */
} reader;

/* Documents end to end, in blocks; what belongs to the tokens of block b begins at tile `tiles[b]`. */
typedef struct {
    const int *places;                     /* [T, c] rows of the slices */
    unsigned chance, keys[2];              /* a feature is dropped whose number is below; see `drop` in encode.c */
    const long *edges, *tiles, *pair_edges; /* [B + 1] tokens, tiles and pairs of the blocks */
    const long *spans;                     /* [P, 2] tokens of each pair's document */
    const long *hole_edges, *holes;        /* [P + 1] and the tokens each pair leaves out */
    const long *pairs;                     /* [P] places in the batch */
    long tokens, blocks, rows;             /* T, B, rows of the slices */
    long pair_count, hole_count, batch;    /* P, holes, places in the batch */
} laid_down;

/* One side of a training step: what its blocks are read with, what they keep, and what comes back. */
typedef struct {
    reader e;
    laid_down d;
    const float *slices;
    long stride;
    float *features, *gates, *words, *viewpoints; /* as carp_read's */
    const float *grad;                            /* of the viewpoints */
    float *rows;                                  /* of the tokens, as carp_read_back's */
} side;

/* Row 0 of the v-th vector of a block's words [tiles, rows, TOKENS]. */
INLINE const float *vector_at(const float *words, long rows, long v) {
    return words + (v >> 1) * rows * TOKENS + (v & 1) * LANES;
}

/* Whether some blocks of the documents can be read: everything leads to where something is. */
static int readable(const reader *e, const laid_down *d, long first, long last) {
    if (first < 0 || last < first || last > d->blocks || !rise(d->edges + first, last - first, 0, d->tokens)) return 0;
    const long begin = d->edges[first], end = d->edges[last], *edges = d->pair_edges;
    if (!places_below(d->places + begin * e->window, (end - begin) * e->window, d->rows)) return 0;
    if (!rise(edges + first, last - first, 0, d->pair_count)) return 0;
    if (!numbers_below(d->pairs + edges[first], edges[last] - edges[first], d->batch)) return 0;
    if (!rise(d->hole_edges + edges[first], edges[last] - edges[first], 0, d->hole_count)) return 0;
    for (long b = first; b < last; b++)
        for (long p = edges[b]; p < edges[b + 1]; p++) {
            if (!rise(d->spans + 2 * p, 1, d->edges[b], d->edges[b + 1])) return 0;
            for (long h = d->hole_edges[p]; h < d->hole_edges[p + 1]; h++)
                if (d->holes[h] < d->spans[2 * p] || d->holes[h] >= d->spans[2 * p + 1]) return 0;
        }
    return 1;
}

#define FEW 8

/* Σ over tokens of weight times word, of a few rows; the weights begin at vector `from`. */
INLINE void weighted_few(const int few, const float *words, long rows, const lanes *weights, long from, long to, float *out) {
    lanes sum[FEW];
    for (int r = 0; r < few; r++) sum[r] = (lanes){0};
    for (long v = from; v < to; v++) {
        const float *at = vector_at(words, rows, v);
        for (int r = 0; r < few; r++) sum[r] += weights[v - from] * load(at + r * TOKENS);
    }
#ifdef SHUFFLES
    if (few == FEW) {
        float part[LANES];
        const lanes halves = totals8(sum);
        store(part, fold1(halves, halves));
        for (int r = 0; r < few; r++) out[r] = part[r];
        return;
    }
#endif
    for (int r = 0; r < few; r++) out[r] = total(sum[r]);
}

/* The same of `count` rows from `row` on. */
static void weighted(const float *words, long rows, long row, long count, const lanes *weights, long from, long to, float *out) {
    words += row * TOKENS;
    long r = 0;
    for (; r + FEW <= count; r += FEW) weighted_few(FEW, words + r * TOKENS, rows, weights, from, to, out + r);
    for (; r < count; r++) weighted_few(1, words + r * TOKENS, rows, weights, from, to, out + r);
}

/* Each token's product with `with` [count], for rows from `row` on. */
static void products(const float *words, long rows, long row, long count, const float *with, long from, long to, lanes *out) {
    for (long v = from; v < to; v++) {
        const float *at = vector_at(words + row * TOKENS, rows, v);
        lanes sum[4] = {{0}, {0}, {0}, {0}};
        long j = 0;
        for (; j + 4 <= count; j += 4)
            for (int i = 0; i < 4; i++) sum[i] += with[j + i] * load(at + (j + i) * TOKENS);
        for (; j < count; j++) sum[0] += with[j] * load(at + j * TOKENS);
        out[v - from] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

/* One over the number of a pair's words at each of them, zero elsewhere; from vector `from` of the block on. */
static void mean_weights(const laid_down *d, long pair, long origin, long from, long to, lanes *weights) {
    const long begin = d->spans[2 * pair] - origin, end = d->spans[2 * pair + 1] - origin;
    const long *hole = d->holes + d->hole_edges[pair], *hole_end = d->holes + d->hole_edges[pair + 1];
    const float share = 1.0f / (end - begin - (hole_end - hole));
    float *flat = (float *)weights - from * LANES;
    for (long t = from * LANES; t < to * LANES; t++) flat[t] = t >= begin && t < end ? share : 0;
    for (; hole < hole_end; hole++) flat[*hole - origin] = 0;
}

/* Equation 2 up to the attention: the mean asks each word of one viewpoint's `words`. */
static void attend(const reader *e, const float *words, long x, const lanes *mean, long from, long to, float *rudiment, lanes *attention) {
    const long k = e->size, rows = e->viewpoints * k;
    weighted(words, rows, x * k, k, mean, from, to, rudiment);
    products(words, rows, x * k, k, rudiment, from, to, attention);
    lanes top = all(-3.0e38f), sum = {0};
    for (long v = 0; v < to - from; v++) {
        attention[v] = choose(mean[v] > 0.0f, attention[v] * e->scale, all(-3.0e38f));
        top = larger(top, attention[v]);
    }
    float most = top[0];
    for (int l = 1; l < LANES; l++) most = top[l] > most ? top[l] : most;
    for (long v = 0; v < to - from; v++) {
        attention[v] = choose(mean[v] > 0.0f, power(attention[v] - most), (lanes){0});
        sum += attention[v];
    }
    const float share = 1 / total(sum);
    for (long v = 0; v < to - from; v++) attention[v] *= share;
}
