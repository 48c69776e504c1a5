/* Viewpoints from ragged documents: Equations 1 and 2 of the paper, a tile of TOKENS words at a time.

   From the slices of its words to the projected contexts a tile stays in the nearest cache. viewpoints.py has the same in
   torch for where there is no compiler. */

#include "reading.h"

/* How many numbers whole vectors have: rows that Python lays out are filled up to them. */
long carp_lanes(void) { return LANES; }

/* Weights [rows, depth], the matrix lying anywhere, packed for `multiply`. */
void carp_pack(const float *from, long rows, long depth, long row_step, long depth_step, float *to) {
    for (long first = 0, height = group_of(rows); first < rows; first += height)
        for (long d = 0; d < depth; d++)
            for (long r = first; r < first + height && r < rows; r++) *to++ = from[r * row_step + d * depth_step];
}

/* c_j [n, TOKENS]: each token's sum of its neighbours' slices, through ReLU; zero where there is no token. */
static void gather(const reader *e, const int *places, long left, const float *slices, long stride, float *features) {
    const long n = e->filters, window = e->window;
    for (long half = 0; half < TOKENS; half += LANES)
        for (long first = 0; first < n; first += LANES) {
            lanes sum[LANES];
            for (long l = 0; l < LANES; l++) {
                sum[l] = (lanes){0};
                if (half + l >= left) continue;
                for (long s = 0; s < window; s++)
                    sum[l] += load(slices + places[(half + l) * window + s] * stride + s * n + first);
            }
            turn_over(sum);
            for (long i = 0; i < LANES && first + i < n; i++)
                store(features + (first + i) * TOKENS + half, larger(sum[i], (lanes){0}));
        }
}

/* Fetches the slices of the next tile, which lie anywhere, while this one is worked on.
   Inlined: some compilers take a function that only prefetches for one that does nothing. */
INLINE void prefetch(const reader *e, const int *places, long left, const float *slices, long stride) {
    const long n = e->filters, window = e->window;
    if (left > TOKENS) left = TOKENS;
    for (long i = 0; i < left * window; i++) {
        const float *slice = slices + places[i] * stride + i % window * n;
        for (long j = 0; j < n + LANES; j += LANES) __builtin_prefetch(slice + j, 0, 2);
    }
}

/* Features whose numbers are below `chance` become zero. A feature's number is mixed from the keys and its place among
   all of the side's, [T, n], and so does not depend on the order of the work: see `drawn` in step_plan.py. */
static void drop(const laid_down *d, long n, long token, float *features) {
    typedef unsigned numbers __attribute__((vector_size(4 * LANES)));
    numbers place;
    for (unsigned l = 0; l < LANES; l++) place[l] = (token + l) * n;
    for (long i = 0; i < n; i++, place += 1, features += TOKENS)
        for (unsigned h = 0; h < TOKENS; h += LANES) {
            numbers x = ((place + h * (unsigned)n) * 0x9E3779B1u) ^ d->keys[0];
            x = (x ^ (x >> 16)) * 0x85EBCA6Bu + d->keys[1];
            x = (x ^ (x >> 13)) * 0xC2B2AE35u;
            x ^= x >> 16;
            store(features + h, choose((whole)(x < d->chance), (lanes){0}, load(features + h)));
        }
}

/* Stores past the caches where the processor can: what is kept for going backward would drive out what is needed now. */
INLINE void put_away(float *to, lanes x) {
#ifdef __AVX512F__
    _mm512_stream_ps(to, (__m512)x);
#else
    store(to, x);
#endif
}

/* Equation 1 and the projection of one viewpoint of a tile: its words [k, TOKENS]. The gate [n, TOKENS] is kept if there
   is a place for it; `room` is for 2 n · TOKENS numbers. */
static void project(const reader *e, long x, const float *features, float *kept, float *room, float *words) {
    const long n = e->filters;
    float *gate = room, *gated = room + n * TOKENS;
    multiply(e->gate + x * n * n, n, n, features, e->query + x * n, gate, 0);
    for (long j = 0; j < n * TOKENS; j += LANES) {
        const lanes open = sigmoid(load(gate + j));
        if (kept) put_away(kept + j, open);
        store(gated + j, open * load(features + j));
    }
    multiply(e->project, e->size, n, gated, 0, words, 0);
}

/* Equation 2 for one pair. */
static void view(const reader *e, const laid_down *d, long p, long begin, const float *words, float *room, float *viewpoints) {
    const long k = e->size, m = e->viewpoints;
    const long from = (d->spans[2 * p] - begin) / LANES, to = (d->spans[2 * p + 1] - begin + LANES - 1) / LANES;
    lanes *mean = (lanes *)room, *attention = mean + (to - from);
    float *rudiment = (float *)(attention + (to - from));
    mean_weights(d, p, begin, from, to, mean);
    for (long x = 0; x < m; x++) {
        attend(e, words, x, mean, from, to, rudiment, attention);
        weighted(words, m * k, x * k, k, attention, from, to, viewpoints + x * k);
    }
}

/* The viewpoints [., M, k] of the pairs of some blocks. Where `features` [tiles, n, TOKENS], `gates` [tiles, M · n, TOKENS]
   and `words` [tiles, M · k, TOKENS] are kept for going backward they are of all tiles; else `features` is room for one,
   `words` for those of the longest block and there are no gates. `room` is for
   (2 n + 2 (tiles of the longest block + 1) + k) · TOKENS numbers. Like all that give a long back, it gives 0 if it did
   its work and 1 if it did nothing, because what it was given does not fit together. */
long carp_read(const reader *e, const laid_down *d, long first, long last, const float *slices, long stride, int kept,
               float *features, float *gates, float *words, float *room, float *viewpoints) {
    const long n = e->filters, m = e->viewpoints, k = e->size;
    if (!readable(e, d, first, last)) return 1;
    for (long b = first; b < last; b++) {
        const long begin = d->edges[b], end = d->edges[b + 1], origin = kept ? d->tiles[b] : 0;
        float *p = words + origin * m * k * TOKENS;
        for (long tile = 0, t = begin; t < end; tile++, t += TOKENS) {
            const long left = end - t < TOKENS ? end - t : TOKENS;
            float *c = features + (kept ? origin + tile : 0) * n * TOKENS;
            gather(e, d->places + t * e->window, left, slices, stride, c);
            if (d->chance) drop(d, n, t, c);
            prefetch(e, d->places + (t + left) * e->window, d->edges[last] - t - left, slices, stride);
            for (long x = 0; x < m; x++) {
                float *gate = kept ? gates + ((origin + tile) * m + x) * n * TOKENS : 0;
                project(e, x, c, gate, room, p + (tile * m + x) * k * TOKENS);
            }
        }
        for (long pair = d->pair_edges[b]; pair < d->pair_edges[b + 1]; pair++)
            view(e, d, pair, begin, p, room, viewpoints + d->pairs[pair] * m * k);
    }
    return 0;
}

/* Both sides' blocks in pieces [count, 3] of a side, its first block and the one after its last. Each caller takes the
   next piece that is still free, until none is left. */
long carp_read_round(const side *sides, const long *pieces, long count, long *next, float *room) {
    long refused = 0;
    for (long i; (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < count;) {
        const side *s = sides + !!pieces[3 * i];
        refused |= carp_read(&s->e, &s->d, pieces[3 * i + 1], pieces[3 * i + 2], s->slices, s->stride, 1, s->features, s->gates,
                  s->words, room, s->viewpoints);
    }
#ifdef __AVX512F__
    _mm_sfence(); /* other threads see what was put away */
#endif
    return refused;
}

/* The words around each word of some documents, as rows of the slices; beyond the review is `no_word`. There are
   `documents` of `tokens` words together, and a slot for each of `known` words. */
long carp_windows(const int *words, const int *review, const long *offsets, long documents, long tokens, long first,
                  long last, const int *slot, long known, int no_word, long window, int *places) {
    const long half = window / 2;
    if (first < 0 || last < first || last > documents || !rise(offsets + first, last - first, 0, tokens)) return 1;
    if (!places_below(words + offsets[first], offsets[last] - offsets[first], known)) return 1;
    for (long d = first; d < last; d++)
        for (long t = offsets[d]; t < offsets[d + 1]; t++)
            for (long s = 0; s < window; s++) {
                const long there = t + s - half;
                const int same = there >= offsets[d] && there < offsets[d + 1] && review[there] == review[t];
                places[t * window + s] = same ? slot[words[there]] : no_word;
            }
    return 0;
}
