/* The convolution over distinct words, forth and back, and the optimiser's step on their rows.

   Compiled on the machine it runs on; words_cpu.py has the same in torch where there is no compiler. */

#include <math.h>
#include <string.h>

#include "panels.h"

/* The filters of a side: [d, c · n] filled up to whole vectors of columns, and the bias, at the window's middle. */
typedef struct {
    long dimension, columns;
    const float *weight, *bias;
} filters;

/* Copies numbered rows of the table to `rows`, filled up to whole vectors. */
void carp_take(const float *table, long dimension, const long *numbers, long count, float *rows) {
    const long stride = whole_vectors(dimension);
    for (long r = 0; r < count; r++) memcpy(rows + r * stride, table + numbers[r] * dimension, 4 * dimension);
}

/* The slices of words whose embeddings are `rows`; both filled up to whole vectors. */
void carp_slices(const filters *f, const float *rows, long count, float *slices) {
    const long columns = whole_vectors(f->columns);
    const factors given = {rows, whole_vectors(f->dimension), 1, f->weight, columns, f->dimension, slices, columns};
    multiply_panels(count, f->columns, given, f->bias, 0);
}
