/* Products of matrices whose columns lie along the lanes: out [rows, columns] from left [rows, depth] and right
   [depth, columns]. Columns are filled up to whole vectors in memory; what lies beyond them is computed and never used. */

#include "lanes.h"

#if REGISTERS == 32
#define HIGH 8 /* rows and vectors whose sums lie in registers */
#else
#define HIGH 4
#endif
#define WIDE 3
#define INLINE static inline __attribute__((always_inline))

INLINE long whole_vectors(long columns) { return (columns + LANES - 1) / LANES * LANES; }

typedef struct {
    const float *left; /* element (r, d) at r · row_step + d · depth_step */
    long row_step, depth_step;
    const float *right; /* [depth, stride] */
    long stride, depth;
    float *out; /* [rows, out_stride] */
    long out_stride;
} factors;

INLINE void panel(const int high, const int wide, factors f, const float *start, int add) {
    lanes sum[HIGH][WIDE]; /* of fixed size, or it would not lie in registers */
    for (int r = 0; r < high; r++)
        for (int v = 0; v < wide; v++)
            sum[r][v] = add     ? load(f.out + r * f.out_stride + v * LANES)
                        : start ? load(start + v * LANES)
                                : (lanes){0};
    for (long d = 0; d < f.depth; d++, f.left += f.depth_step, f.right += f.stride) {
        lanes right[WIDE];
        for (int v = 0; v < wide; v++) right[v] = load(f.right + v * LANES);
        for (int r = 0; r < high; r++)
            for (int v = 0; v < wide; v++) sum[r][v] += f.left[r * f.row_step] * right[v];
    }
    for (int r = 0; r < high; r++)
        for (int v = 0; v < wide; v++) *(loose *)(f.out + r * f.out_stride + v * LANES) = sum[r][v];
}

INLINE void panel_of_rows(const int wide, long rows, factors f, const float *start, int add) {
    for (; rows >= HIGH; rows -= HIGH) {
        panel(HIGH, wide, f, start, add);
        f.left += HIGH * f.row_step;
        f.out += HIGH * f.out_stride;
    }
    for (; rows; rows--) {
        panel(1, wide, f, start, add);
        f.left += f.row_step;
        f.out += f.out_stride;
    }
}

/* Beginning with `start` [columns], with what is in `out`, or with zero. */
static void multiply_panels(long rows, long columns, factors f, const float *start, int add) {
    for (long left = whole_vectors(columns) / LANES; left > 0; left -= WIDE) {
        if (left >= WIDE) panel_of_rows(WIDE, rows, f, start, add);
        else if (left == 2) panel_of_rows(2, rows, f, start, add);
        else panel_of_rows(1, rows, f, start, add);
        f.right += WIDE * LANES;
        f.out += WIDE * LANES;
        if (start) start += WIDE * LANES;
    }
}
