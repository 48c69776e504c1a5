/* What C is given is checked before anything is looked up by it: the checks cost little beside the work. */

/* Whether `steps` [count + 1] rise, from `low` at least to `high` at most. */
static inline int rise(const long *steps, long count, long low, long high) {
    if (count < 0 || low < 0 || steps[0] < low || steps[count] > high) return 0;
    int falls = 0;
    for (long i = 0; i < count; i++) falls |= steps[i] > steps[i + 1];
    return !falls;
}

/* Whether all `numbers` are from 0 up to, and not including, `below`. */
static inline int places_below(const int *numbers, long count, long below) {
    int outside = 0;
    for (long i = 0; i < count; i++) outside |= (unsigned)numbers[i] >= (unsigned long)below;
    return !outside;
}

static inline int numbers_below(const long *numbers, long count, long below) {
    int outside = 0;
    for (long i = 0; i < count; i++) outside |= (unsigned long)numbers[i] >= (unsigned long)below;
    return !outside;
}
