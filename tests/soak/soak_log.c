/* What the plugin says, counted. Its lines are handed over by its service thread and by calls that are about to fail.
 */
#include "tests/soak/soak.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_warn[1024];

/*
 * "... path 2 life 1 UP -> DOWN: WHY, local NIC fab2, remote NIC 1", or "WHY on fab2": was neither of them ever
 * touched? Which host is remote is not said, and behind a completion not even its NIC: any that it could be.
 */
static int is_false(const char *text)
{
    const struct soak_plan *p = soak_rank.plan;
    const char *at = strstr(text, "local NIC fab"), *on = strstr(text, " on fab");
    unsigned local, remote, away = 0;

    for (int h = 0; h < p->hosts; h++) {
        if (h != soak_rank.host || p->procs > p->hosts)
            away |= atomic_load(&soak_rank.board->touched[h]);
    }
    if (at && sscanf(at, "local NIC fab%u, remote NIC %u", &local, &remote) == 2)
        away &= 1u << remote;
    else if (on && sscanf(on, " on fab%u", &local) == 1)
        away &= p->crossrail ? ~0u : 1u << local;
    else
        return 1;
    /* who leaves takes its registrations away first: what is on its way to it fails on whatever path */
    if (p->want == SOAK_KILL && strstr(text, "(remote access error)"))
        return 0;
    return p->quiet || (!(atomic_load(&soak_rank.board->touched[soak_rank.host]) >> local & 1) && !away);
}

static void line_count(const char *text)
{
    struct soak_rank_board *b = soak_rank.mine;
    const char *at;
    unsigned n;

    if (strstr(text, " life ") && strstr(text, " UP -> DOWN: ") && !strstr(text, " DOWN: closing")) {
        atomic_fetch_add(&b->switches, 1);
        if (is_false(text))
            atomic_fetch_add(&b->false_switches, 1);
    } else if ((at = strstr(text, " settled: ")) && sscanf(at, " settled: %u parts to post again", &n) == 1) {
        atomic_fetch_add(&b->replays, n);
    } else if (strstr(text, " is up: its NIC pair is back")) {
        atomic_fetch_add(&b->returns, 1);
    } else if (strstr(text, " -> FENCED: soft")) {
        atomic_fetch_add(&b->soft, 1);
    } else if (strstr(text, "neither end could fence")) {
        atomic_fetch_add(&b->unproven, 1);
    } else if ((at = strstr(text, "out-of-band channel listens on ")) &&
               sscanf(at, "out-of-band channel listens on %63s", b->address) == 1) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/* Lines that must not come whatever breaks: a state that cannot be, a record that nobody sends, an arrival that nobody
 * posted. */
static int is_impossible(const char *text)
{
    static const char *const never[] = {" cannot go from ", "malformed message", "NET/R2 : arrival ",
                                        " cannot be packed"};

    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        if (strstr(text, never[i]))
            return 1;
    }
    return 0;
}

void soak_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    int killed = atomic_load(&soak_rank.board->killed);
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    fprintf(stderr, "%.6f p%d %s %s\n", (double)soak_now() / 1e9, soak_rank.index,
            level == ABI_LOG_WARN ? "WARN" : "INFO", text);
    line_count(text);
    if (level == ABI_LOG_WARN)
        snprintf(last_warn, sizeof(last_warn), "%s", text);
    if (level == ABI_LOG_WARN && killed >= 0 && strstr(text, soak_rank.board->rank[killed].address))
        atomic_store(&soak_rank.mine->named, 1);
    pthread_mutex_unlock(&lock);
    if (is_impossible(text))
        soak_fail("the plugin says: %s", text);
}

const char *soak_last_warn(void)
{
    static _Thread_local char copy[sizeof(last_warn)];

    pthread_mutex_lock(&lock);
    memcpy(copy, last_warn, sizeof(copy));
    pthread_mutex_unlock(&lock);
    return copy;
}
