/* encode.c backward: from the gradients of viewpoints to those of the convolution's sums, of the gates'
   and the projection's weights. viewpoints.py has the same in torch. */

#include <string.h>

#include "reading.h"

#if REGISTERS == 32
#define SQUARE 5 /* rows and columns whose sums lie in registers */
#else
#define SQUARE 3
#endif

INLINE void add_totals(const int high, const int wide, lanes sum[SQUARE][SQUARE], float *out, long stride) {
#ifdef SHUFFLES
    if (high * wide == 25) {
        float part[25];
        store(part, totals16(&sum[0][0]));
        store(part + 9, totals16(&sum[0][0] + 9));
        for (int i = 0; i < high; i++)
            for (int j = 0; j < wide; j++) out[i * stride + j] += part[i * wide + j];
        return;
    }
#endif
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++) out[i * stride + j] += total(sum[i][j]);
}

INLINE void outer(const int high, const int wide, const float *a, long a_step, const float *b, long b_step, long tiles,
                  float *out, long stride) {
    lanes sum[SQUARE][SQUARE];
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++) sum[i][j] = (lanes){0};
    for (long tile = 0; tile < tiles; tile++, a += a_step, b += b_step)
        for (int h = 0; h < TOKENS; h += LANES) {
            lanes left[SQUARE];
            for (int i = 0; i < high; i++) left[i] = load(a + i * TOKENS + h);
            for (int j = 0; j < wide; j++) {
                const lanes right = load(b + j * TOKENS + h);
                __builtin_prefetch(b + b_step + j * TOKENS + h);
                for (int i = 0; i < high; i++) sum[i][j] += left[i] * right;
            }
        }
    add_totals(high, wide, sum, out, stride);
}

INLINE void outer_rows(const int high, const float *a, long a_step, const float *b, long columns, long tiles, float *out) {
    const long b_step = columns * TOKENS;
    long j = 0;
    for (; j + SQUARE <= columns; j += SQUARE)
        outer(high, SQUARE, a, a_step, b + j * TOKENS, b_step, tiles, out + j, columns);
    for (; j < columns; j++) outer(high, 1, a, a_step, b + j * TOKENS, b_step, tiles, out + j, columns);
}

/* out [rows, columns] += Σ over tokens of a [tiles, rows, TOKENS] times b [tiles, columns, TOKENS]. */
static void add_outer(const float *a, long rows, const float *b, long columns, long tiles, float *out) {
    const long step = rows * TOKENS;
    long i = 0;
    for (; i + SQUARE <= rows; i += SQUARE)
        outer_rows(SQUARE, a + i * TOKENS, step, b, columns, tiles, out + i * columns);
    for (; i < rows; i++) outer_rows(1, a + i * TOKENS, step, b, columns, tiles, out + i * columns);
}

/* out [rows] += Σ over tokens of a [tiles, rows, TOKENS]. */
static void add_sums(const float *a, long rows, long tiles, float *out) {
    for (long r = 0; r < rows; r++) {
        lanes sum = {0};
        for (long tile = 0; tile < tiles; tile++) {
            const float *at = a + (tile * rows + r) * TOKENS;
            sum += load(at) + load(at + LANES);
        }
        out[r] += total(sum);
    }
}

typedef struct {
    lanes *mean, *attention, *d_scores;
    float *rudiment, *d_rudiment;
} attending;

/* Through Equation 2: one pair's part of the gradient of its document's words [tiles, M · k, TOKENS]. */
static void attention_back(const reader *e, const laid_down *d, long p, long begin, const float *words, const float *grad,
                           attending room, float *d_words) {
    const long k = e->size, m = e->viewpoints, rows = m * k;
    const long from = (d->spans[2 * p] - begin) / LANES, to = (d->spans[2 * p + 1] - begin + LANES - 1) / LANES;
    mean_weights(d, p, begin, from, to, room.mean);
    for (long x = 0; x < m; x++, grad += k) {
        attend(e, words, x, room.mean, from, to, room.rudiment, room.attention);
        products(words, rows, x * k, k, grad, from, to, room.d_scores); /* of the attention, until below */
        lanes along = {0};
        for (long v = 0; v < to - from; v++) along += room.attention[v] * room.d_scores[v];
        const float mean = total(along);
        for (long v = 0; v < to - from; v++) room.d_scores[v] = room.attention[v] * (room.d_scores[v] - mean) * e->scale;
        weighted(words, rows, x * k, k, room.d_scores, from, to, room.d_rudiment);
        for (long v = from; v < to; v++) {
            float *at = (float *)vector_at(d_words, rows, v) + x * k * TOKENS;
            const lanes a = room.attention[v - from], s = room.d_scores[v - from], w = room.mean[v - from];
            for (long j = 0; j < k; j++, at += TOKENS)
                store(at, load(at) + a * grad[j] + s * room.rudiment[j] + w * room.d_rudiment[j]);
        }
    }
}

/* Through the projection and Equation 1 for one tile, to the gradient of the features before ReLU. The gate's own
   gradient, before the sigmoid, takes its place. */
static void tile_back(const reader *e, const float *features, float *gate, const float *d_words, float *gated,
                      float *d_gated, float *d_features) {
    const long n = e->filters, k = e->size, m = e->viewpoints;
    memset(d_features, 0, 4 * n * TOKENS);
    for (long x = 0; x < m; x++) {
        multiply(e->project_back, n, k, d_words + x * k * TOKENS, 0, d_gated, 0);
        for (long j = 0, at = x * n * TOKENS; j < n * TOKENS; j += LANES, at += LANES) {
            const lanes open = load(gate + at), f = load(features + j), through = open * f;
            const lanes back = load(d_gated + j) * open;
            __builtin_prefetch(gate + m * n * TOKENS + at, 0, 2); /* the next tile's */
            store(gated + at, through);
            store(d_features + j, load(d_features + j) + back);
            store(gate + at, back * (f - through));
        }
    }
    multiply(e->gate_back, n, m * n, gate, 0, d_features, 1);
    for (long j = 0; j < n * TOKENS; j += LANES)
        store(d_features + j, choose(load(features + j) > 0.0f, load(d_features + j), (lanes){0}));
}

/* A tile [n, TOKENS] as rows [left, n filled up to whole vectors with zeros]. */
static void rows_of(const float *tile, long n, long left, float *rows) {
    const long width = (n + LANES - 1) / LANES * LANES;
    for (long half = 0; half < TOKENS; half += LANES)
        for (long first = 0; first < n; first += LANES) {
            lanes some[LANES];
            for (long i = 0; i < LANES; i++)
                some[i] = first + i < n ? load(tile + (first + i) * TOKENS + half) : (lanes){0};
            turn_over(some);
            for (long l = 0; l < LANES && half + l < left; l++) store(rows + (half + l) * width + first, some[l]);
        }
}

/* Of some blocks, from the gradients of viewpoints: the rows [T, n filled up to whole vectors] are written, and `sums` is
   [M · n, n] of W_1, [M · n] of W_2 q + b, [k, n] of W_p and [n] of the convolution's bias. `room` is for
   (longest · (m k + m n + 6) + 2 n + 2 k + 8) · TOKENS numbers, `longest` a block's most tiles. */
static void read_back(const side *s, long first, long last, long longest, float *room, float *sums) {
    const reader *e = &s->e;
    const laid_down *d = &s->d;
    const long n = e->filters, m = e->viewpoints, k = e->size, width = (n + LANES - 1) / LANES * LANES;
    float *d_words = room, *gated = d_words + longest * m * k * TOKENS;
    float *d_gated = gated + longest * m * n * TOKENS, *d_tile = d_gated + n * TOKENS;
    lanes *vectors = (lanes *)(d_tile + n * TOKENS);
    const long most = 2 * longest + 1;
    const attending with = {vectors, vectors + most, vectors + 2 * most, (float *)(vectors + 3 * most),
                            (float *)(vectors + 3 * most) + k};
    float *of_query = sums + m * n * n, *of_project = of_query + m * n, *of_bias = of_project + k * n;
    memset(sums, 0, 4 * (m * n * n + m * n + k * n + n));
    for (long b = first; b < last; b++) {
        const long begin = d->edges[b], end = d->edges[b + 1], origin = d->tiles[b], tiles = d->tiles[b + 1] - origin;
        const float *c = s->features + origin * n * TOKENS, *w = s->words + origin * m * k * TOKENS;
        float *g = s->gates + origin * m * n * TOKENS; /* the gates, and once a tile is done their gradients */
        memset(d_words, 0, 4 * tiles * m * k * TOKENS);
        for (long p = d->pair_edges[b]; p < d->pair_edges[b + 1]; p++)
            attention_back(e, d, p, begin, w, s->grad + d->pairs[p] * m * k, with, d_words);
        for (long tile = 0; tile < tiles; tile++) {
            tile_back(e, c + tile * n * TOKENS, g + tile * m * n * TOKENS, d_words + tile * m * k * TOKENS,
                      gated + tile * m * n * TOKENS, d_gated, d_tile);
            add_sums(d_tile, n, 1, of_bias);
            rows_of(d_tile, n, end - begin - tile * TOKENS, s->rows + (begin + tile * TOKENS) * width);
        }
        add_outer(g, m * n, c, n, tiles, sums);
        add_sums(g, m * n, tiles, of_query);
        add_outer(d_words, k, gated, n, tiles * m, of_project);
    }
}

/* Both sides' blocks in the pieces of carp_read_round, each with its own `sums`. */
long carp_read_back_round(const side *sides, const long *pieces, long count, long *next, long longest, float *room,
                          float *sums, long size) {
    long refused = 0;
    for (long i; (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < count;) {
        const side *s = sides + !!pieces[3 * i];
        if (readable(&s->e, &s->d, pieces[3 * i + 1], pieces[3 * i + 2]))
            read_back(s, pieces[3 * i + 1], pieces[3 * i + 2], longest, room, sums + i * size);
        else refused = 1;
    }
    return refused;
}
