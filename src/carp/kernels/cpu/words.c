/* The convolution over distinct words, forward and backward, and the optimiser's step on their rows.

   word_convolution.py has the same in torch for where there is no compiler. */

#include <math.h>
#include <string.h>

#include "checks.h"
#include "panels.h"

/* The filters of a side, [d, c · n] and turned, [c · n, d], their columns filled up to whole vectors; and the bias, at
   the window's middle. */
typedef struct {
    long dimension, window, filters;
    const float *weight, *turned, *bias;
} filters;

/* Where a side's words find their tokens, and the gradients of those. */
typedef struct {
    long first, last;  /* the side's stretch of the batch's words */
    const int *places; /* [T, c] the words around each token, counted from `first`; last - first is no word */
    const int *order;  /* [T + AHEAD] tokens, word by word */
    const long *edges; /* [words + 1] */
    const float *grad; /* [T, n filled up to whole vectors of zeros] */
    long tokens;       /* T */
} side_words;

/* The embedding's rows and the optimiser's: see RowOptimizer in word_convolution.py. */
typedef struct {
    float *table, *square;
    long *settled; /* the step up to which each row's running square is decayed */
    float *held;   /* [words of the batch, d] where gradients go instead, if they wait for those of other processes */
    long now;
    double rate, decay, epsilon;
} row_optimizer;

/* Copies numbered rows of a table of `words` to `rows`, filled up to whole vectors. */
long carp_take(const float *table, long words, long dimension, const long *numbers, long count, float *rows) {
    const long stride = whole_vectors(dimension);
    if (!numbers_below(numbers, count, words)) return 1;
    for (long r = 0; r < count; r++, rows += stride) {
        const float *ahead = table + numbers[r + 2 < count ? r + 2 : r] * dimension;
        for (long j = 0; j < dimension; j += LANES) __builtin_prefetch(ahead + j);
        memcpy(rows, table + numbers[r] * dimension, 4 * dimension);
        memset(rows + dimension, 0, 4 * (stride - dimension));
    }
    return 0;
}

/* The slices of words whose embeddings are `rows`; both filled up to whole vectors. */
void carp_slices(const filters *f, const float *rows, long count, float *slices) {
    const long columns = whole_vectors(f->window * f->filters);
    const factors given = {rows, whole_vectors(f->dimension), 1, f->weight, columns, f->dimension, slices, columns};
    multiply_panels(count, columns, given, f->bias, 0);
}

#define AHEAD 6 /* tokens whose gradients are on their way */

/* Gradients of the slices of some words [., c · n filled up to whole vectors]: each is the sum of those tokens' that
   look at the word. A vector may be written beyond the last. */
static void gather(const filters *f, const side_words *w, long first, long last, const row_optimizer *o,
                   const long *numbers, float *slices) {
    const long n = f->filters, window = f->window, half = window / 2;
    const long width = whole_vectors(n), stride = whole_vectors(window * n);
    const int no_word = w->last - w->first;
    for (long word = first - w->first; word < last - w->first; word++, numbers++, slices += stride) {
        for (long j = 0; j < f->dimension; j += LANES) { /* soon to be updated */
            __builtin_prefetch(o->table + *numbers * f->dimension + j, 1, 2);
            __builtin_prefetch(o->square + *numbers * f->dimension + j, 1, 2);
        }
        memset(slices, 0, 4 * stride);
        for (long i = w->edges[word]; i < w->edges[word + 1]; i++) {
            const long token = w->order[i];
            const int *places = w->places + token * window;
            const float *grad = w->grad + (token + half) * width, *ahead = w->grad + (w->order[i + AHEAD] - half) * width;
            for (long j = 0; j < window * width; j += LANES) __builtin_prefetch(ahead + j);
            for (long step = 0; step < window; step++, grad -= width) {
                if (places[window - 1 - step] == no_word) continue; /* there the review ends */
                float *sum = slices + step * n;
                for (long j = 0; j < width; j += LANES) *(loose *)(sum + j) = load(sum + j) + load(grad + j);
            }
        }
    }
}

/* RMSprop on numbers whose running squares are first shrunk. */
static void update(float *restrict numbers, float *restrict square, const float *restrict grad, long count, float shrink,
                   float fresh, float rate, float epsilon) {
    for (long j = 0; j < count; j++) {
        square[j] = square[j] * shrink + fresh * grad[j] * grad[j];
        numbers[j] -= rate * (grad[j] / (sqrtf(square[j]) + epsilon));
    }
}

/* The same on whole tensors, each with its running square and its gradient. */
void carp_rmsprop(float *const *tensors, float *const *squares, float *const *grads, const long *counts, long many,
                  double rate, double decay, double epsilon) {
    for (long t = 0; t < many; t++) update(tensors[t], squares[t], grads[t], counts[t], decay, 1 - decay, rate, epsilon);
}

/* Some of the batch's words learn. `rows` are their embeddings, `numbers` their rows of the table. Each of the two sides
   that has them adds up its part of the filters' gradient [c · n, d filled up] in `sums`. `room` is for
   WORDS · (d + c · n), each filled up to whole vectors, and one vector. */
#define WORDS 96
static void words_back(const filters *f, const side_words *sides, const row_optimizer *optimizer, long first, long last,
                       const float *rows, const long *numbers, float *const *sums, float *room) {
    const long dimension = f->dimension, wide = whole_vectors(dimension), columns = f->window * f->filters;
    const long stride = whole_vectors(columns);
    float *grad = room, *slices = room + WORDS * wide;
    for (long some = first; some < last; some += WORDS, rows += WORDS * wide, numbers += WORDS) {
        const long end = some + WORDS < last ? some + WORDS : last, count = end - some;
        int add = 0;
        for (int s = 0; s < 2; s++) {
            if (some < sides[s].first || some >= sides[s].last) continue;
            gather(f + s, sides + s, some, end, optimizer, numbers, slices);
            const factors back = {slices, stride, 1, f[s].turned, wide, columns, grad, wide};
            multiply_panels(count, wide, back, 0, add++);
            const factors along = {slices, 1, stride, rows, wide, count, sums[s], wide};
            multiply_panels(columns, wide, along, 0, some > first);
        }
        for (long r = 0; r < count; r++) {
            const row_optimizer *o = optimizer;
            if (o->held) {
                memcpy(o->held + (some + r) * dimension, grad + r * wide, 4 * dimension);
                continue;
            }
            const long at = numbers[r] * dimension, steps = o->now - o->settled[numbers[r]];
            o->settled[numbers[r]] = o->now;
            update(o->table + at, o->square + at, grad + r * wide, dimension, pow(o->decay, steps), 1 - o->decay, o->rate,
                   o->epsilon);
        }
    }
}

/* A batch's words: their numbers, their embeddings, filled up to whole vectors, and the stretches [count, 2] they are
   worked on in. Each caller takes the next stretch that is still free, until none is left. */
typedef struct {
    const long *numbers, *stretches;
    long count, *next;
    float *rows;
    long words, table; /* different ones of the batch, and rows of the table */
} batch;

/* Whether a stretch of the batch's words, and what the sides have of them, lead to where something is. */
static int followable(const filters *f, const side_words *sides, const batch *b, long first, long last) {
    if (first < 0 || last < first || last > b->words || !numbers_below(b->numbers + first, last - first, b->table)) return 0;
    for (int s = 0; s < 2; s++) {
        const side_words *w = sides + s;
        if (first < w->first || first >= w->last) continue;
        if (last > w->last) return 0;
        if (!w->grad) continue; /* before there are gradients, nothing more is looked up */
        const long *edges = w->edges + first - w->first;
        if (!rise(edges, last - first, 0, w->tokens)) return 0;
        for (long i = edges[0]; i < edges[last - first]; i++) {
            if (w->order[i] < 0 || w->order[i] >= w->tokens) return 0;
            if (!places_below(w->places + w->order[i] * f[s].window, f[s].window, w->last - w->first + 1)) return 0;
        }
    }
    return 1;
}

static int next_stretch(const batch *b, long *i) {
    *i = __atomic_fetch_add(b->next, 1, __ATOMIC_RELAXED);
    return *i < b->count;
}

/* The embeddings of the batch's words, and each side's slices of its own. */
long carp_slices_round(const filters *f, const side_words *sides, const float *table, const batch *b, float *const *slices) {
    long refused = 0;
    const long wide = whole_vectors(f->dimension), stride = whole_vectors(f->window * f->filters);
    for (long i; next_stretch(b, &i);) {
        const long first = b->stretches[2 * i], count = b->stretches[2 * i + 1] - first;
        if (!followable(f, sides, b, first, first + count)) {
            refused = 1;
            continue;
        }
        carp_take(table, b->table, f->dimension, b->numbers + first, count, b->rows + first * wide);
        for (int s = 0; s < 2; s++)
            if (first >= sides[s].first && first < sides[s].last)
                carp_slices(f + s, b->rows + first * wide, count, slices[s] + (first - sides[s].first) * stride);
    }
    return refused;
}

/* The batch's words learn; `sums` [stretches, 2, c · n, d filled up] are written where a side has the words. */
long carp_words_round(const filters *f, const side_words *sides, const row_optimizer *o, const batch *b, float *sums,
                      float *room) {
    long refused = 0;
    const long wide = whole_vectors(f->dimension), size = f->window * f->filters * wide;
    for (long i; next_stretch(b, &i);) {
        const long first = b->stretches[2 * i], last = b->stretches[2 * i + 1];
        float *const places[2] = {sums + 2 * i * size, sums + (2 * i + 1) * size};
        if (followable(f, sides, b, first, last))
            words_back(f, sides, o, first, last, b->rows + first * wide, b->numbers + first, places, room);
        else refused = 1;
    }
    return refused;
}
