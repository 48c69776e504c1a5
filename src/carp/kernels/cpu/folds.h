/* The sums of many vectors' lanes at once: folded pairwise, sixteen vectors become one of their sums.
   Where the compiler has no shuffles, SHUFFLES is not defined. */

#include "tiles.h"

/* From pairs of vectors whose rows' parts are 2 w wide to one whose parts are w wide: a's rows first, then b's. */
#if defined(__has_builtin) && LANES == 16
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#define LIST(...) __VA_ARGS__
#define FOLD(NAME, FIRST, SECOND) \
    INLINE lanes NAME(lanes a, lanes b) { \
        return __builtin_shufflevector(a, b, FIRST) + __builtin_shufflevector(a, b, SECOND); \
    }
FOLD(fold8, LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
     LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
FOLD(fold4, LIST(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
     LIST(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
FOLD(fold2, LIST(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29),
     LIST(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31))
FOLD(fold1, LIST(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
     LIST(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
INLINE lanes totals4(const lanes *s) { return fold4(fold8(s[0], s[1]), fold8(s[2], s[3])); }
INLINE lanes totals8(const lanes *s) { return fold2(totals4(s), totals4(s + 4)); } /* each a sum of two */
INLINE lanes totals16(const lanes *s) { return fold1(totals8(s), totals8(s + 8)); }
#endif
#endif
