/* What ranks and their conductor say to each other. */
#include "tests/nccl/rank/nccl_life.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 500
#define LEAST   1000000      /* bytes after a fault that was in the middle */
#define DOWN    "UP -> DOWN" /* in the plugin's log */

void life_fail(struct life *l, int code, const char *fmt, ...)
{
    struct life_board *b = l->board;
    int none = 0;

    if (atomic_compare_exchange_strong(&b->failed, &none, 1)) {
        va_list ap;
        int n = snprintf(b->text, sizeof(b->text), "rank %d: ", l->rank);

        va_start(ap, fmt);
        vsnprintf(b->text + n, sizeof(b->text) - (size_t)n, fmt, ap);
        va_end(ap);
        b->code = code;
        atomic_store(&b->failed, 2);
    }
    fflush(stdout);
    _exit(code); /* NCCL's threads are at it still: nothing is unloaded below them */
}

void life_look(struct life *l)
{
    if (atomic_load(&l->board->failed)) {
        fflush(stdout);
        _exit(PERF_NET);
    }
}

void life_phase(struct life *l, const char *name)
{
    struct life_place *p = &l->board->place[l->rank];

    atomic_store(&p->limit_ns, 0);
    if (name) {
        snprintf(p->phase, sizeof(p->phase), "%s", name);
        atomic_store(&p->limit_ns, util_now_ns() + LIFE_LIMIT_S * R2_NS_PER_S);
    }
}

static bool has_come(const struct life_board *b, int rank, uint32_t step)
{
    return atomic_load(&b->place[rank].gone) || atomic_load(&b->place[rank].step) >= step;
}

void life_barrier(struct life *l)
{
    struct life_board *b = l->board;
    uint32_t step = atomic_fetch_add(&b->place[l->rank].step, 1) + 1;

    for (int r = 0; r < l->ranks; r++) {
        while (!has_come(b, r, step)) {
            life_look(l);
            usleep(LOOK_US);
        }
    }
}

uint64_t life_all(struct life *l, uint64_t word)
{
    uint64_t sum = 0;

    atomic_store(&l->board->place[l->rank].word, word);
    life_barrier(l);
    for (int r = 0; r < l->ranks; r++) {
        sum += atomic_load(&l->board->place[r].gone) ? 0 : atomic_load(&l->board->place[r].word);
    }
    life_barrier(l);
    return sum;
}

void life_say(struct life *l, const char *fmt, ...)
{
    char text[1200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    printf("rank %d: %s\n", l->rank, text);
    fflush(stdout);
}

static void ask_v(struct life *l, const char *fmt, va_list ap)
{
    struct life_board *b = l->board;
    uint32_t number = atomic_load(&b->asked) + 1;

    vsnprintf(b->ask, sizeof(b->ask), fmt, ap);
    atomic_store(&b->asked, number);
    while (atomic_load(&b->answered) != number) {
        life_look(l);
        usleep(LOOK_US);
    }
    LIFE_WANT(l, b->answer_rc == 0, "%s: %s", b->ask, b->answer);
}

void life_ask(struct life *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ask_v(l, fmt, ap);
    va_end(ap);
}

void life_ask_all(struct life *l, const char *fmt, ...)
{
    life_barrier(l);
    if (l->rank == 0) {
        va_list ap;

        va_start(ap, fmt);
        ask_v(l, fmt, ap);
        va_end(ap);
    }
    life_barrier(l);
}

void life_arm(struct life *l, const char *fmt, ...)
{
    char what[120];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    l->downs = life_log_count(l, DOWN);
    life_ask_all(l, "arm %s", what);
}

bool life_fired(const struct life *l)
{
    return atomic_load(&l->board->fired) != 0;
}

void life_fired_wait(struct life *l)
{
    life_phase(l, "waiting for the fault");
    while (!life_fired(l)) {
        life_look(l);
        usleep(LOOK_US);
    }
    life_phase(l, NULL);
}

static void fired_check(struct life *l)
{
    LIFE_WANT(l, life_fired(l), "the fault that was armed has not come");
}

void life_noticed(struct life *l)
{
    struct life_board *b = l->board;
    uint64_t since;

    life_barrier(l);
    fired_check(l);
    since = atomic_load(&b->moved) - atomic_load(&b->moved_fired);
    LIFE_WANT(l, since >= LEAST, "the fault came at the end: %llu bytes have moved since",
              (unsigned long long)since);
    life_phase(l, "the plugin's word of a fault");
    while (life_all(l, life_log_count(l, DOWN) - l->downs) == 0) {
        usleep(20 * LOOK_US);
    }
    life_phase(l, NULL);
}

uint64_t life_log_count(struct life *l, const char *text)
{
    FILE *f = fopen(l->log, "r");
    char line[2048];
    uint64_t n = 0;

    LIFE_WANT(l, f != NULL, "NCCL has written no log to %s", l->log);
    while (fgets(line, sizeof(line), f)) {
        n += strstr(line, text) != NULL;
    }
    fclose(f);
    return n;
}
