#include "fuzz_rig.h"

#include <check.h>
#include <stdarg.h>

uint64_t fuzz_rig_hurry;

/*
 * What the rig's ck_assert comes down to, without Check: its runner makes a process and a file per
 * test, and there is one test per input here. Linked in place of libcheck.
 */
void _mark_point(const char *file, int line)
{
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    va_list ap;

    if (msg) {
        va_start(ap, msg);
        vfprintf(stderr, msg, ap);
        va_end(ap);
        fputc('\n', stderr);
    }
    fuzz_fail(file, line, expr);
}

/* In place of the fabric's, at link time. */
void __wrap_fab_inproc_run_until(struct fab_inproc *f, uint64_t t_ns);
void __real_fab_inproc_run_until(struct fab_inproc *f, uint64_t t_ns);
void __wrap_fab_inproc_run_until(struct fab_inproc *f, uint64_t t_ns)
{
    __real_fab_inproc_run_until(f, t_ns + fuzz_rig_hurry);
}

void fuzz_rig_run(struct rig *r, uint64_t ns)
{
    fuzz_rig_hurry = ns / 100;
    rig_run(r, ns);
    fuzz_rig_hurry = 0;
}

void fuzz_rig_destroy(struct rig *r)
{
    fuzz_rig_hurry = RIG_S / 100;
    rig_destroy(r);
    fuzz_rig_hurry = 0;
}
