/*
 * What suites cost beside what they test. Each ck_assert() that holds writes its place to a file
 * for the runner, which names the last one where a test dies by a signal or a time-out; suites that
 * assert in a simulation's inner loop spend most of their time so. The first marks of a test go
 * through, then one of MARK_EACH. What fails names its own place. The linker puts this in the place
 * of Check's (--wrap).
 */
#include <stdatomic.h>

#define MARK_FIRST 1000
#define MARK_EACH  500

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/* Of the test's own process, which Check forks with the count that main() left: none. Relaxed: any
 * of its threads may assert. */
static _Atomic unsigned marks;

void __wrap__mark_point(const char *file, int line)
{
    unsigned n = atomic_fetch_add_explicit(&marks, 1, memory_order_relaxed);

    if (n < MARK_FIRST || n % MARK_EACH == 0) {
        __real__mark_point(file, line);
    }
}
