/* What the plugin says, counted. Its lines are handed over by its service thread and by calls that
 * are about to fail.
 */
#include "tests/matrix/matrix.h"
#include "tests/soak/soak.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_warn[1024];

/* Whether a spine between NIC @nic and one of those in @far was broken: of their rail, of two rails
 * the lower one (fab_spine.h). */
static int is_by_spine(unsigned nic, uint32_t far)
{
    uint32_t ways = atomic_load(&soak_rank.board->ways);

    for (unsigned k = 0; k < SOAK_NICS; k++) {
        if ((far >> k & 1) && (k == nic || soak_rank.plan->crossrail) &&
            (ways >> (k < nic ? k : nic) & 1)) {
            return 1;
        }
    }
    return 0;
}

/* A path's last packet was lost, or the other end says that the path is down: whether that is false
 * is counted there. */
static int is_tail(const char *text)
{
    return strstr(text, " DOWN: last packet lost") || strstr(text, " DOWN: announced by peer");
}

/*
 * "send 3 h0/fab1 -> h1 path 2 life 1 UP -> DOWN: WHY, local NIC fab2, remote NIC 1", or "WHY on
 * fab2": was neither of them ever touched, nor what is between? Behind a completion the remote NIC
 * is not said: any that it could be.
 */
static int is_false(const char *text)
{
    const struct soak_plan *p = soak_rank.plan;
    const struct soak_board *b = soak_rank.board;
    const char *at = strstr(text, "local NIC fab"), *on = strstr(text, " on fab"),
               *peer = strstr(text, " path ");
    unsigned local, remote, host, far = ~0u;

    while (peer && peer > text && peer[-1] != ' ') {
        peer--;
    }
    if (!peer || sscanf(peer, "h%u path", &host) != 1 || host >= SOAK_HOSTS) {
        return 1;
    }
    if (at && sscanf(at, "local NIC fab%u, remote NIC %u", &local, &remote) == 2) {
        far = 1u << remote;
    } else if (on && sscanf(on, " on fab%u", &local) == 1) {
        far = p->crossrail ? ~0u : 1u << local;
    } else {
        return 1;
    }
    if (local >= SOAK_NICS) {
        return 1;
    }
    if (is_tail(text) && ((atomic_load(&b->lossy[soak_rank.host]) >> local & 1) ||
                          (atomic_load(&b->lossy[host]) & far))) {
        return 0;
    }
    if (p->quiet) {
        return 1;
    }
    /* who leaves takes its registrations away first: what is on its way to it fails on whatever
     * path */
    if (p->want == SOAK_KILL && strstr(text, "(remote access error)")) {
        return 0;
    }
    return !(atomic_load(&b->touched[soak_rank.host]) >> local & 1) &&
           !(atomic_load(&b->touched[host]) & far) &&
           !(atomic_load(&b->cut[soak_rank.host][local][host]) & far) && !is_by_spine(local, far);
}

/* Whether NIC @nic of host @h was cut from some NIC of every other host: nobody can tell that from
 * its cable. Nor where all others' NICs of its rail were hurt but those that it was cut from: the
 * job learns which were hurt in the same tenths of a second. */
static int is_cut_off(int h, int nic)
{
    int cut = 0;

    for (int far = 0; far < soak_rank.plan->hosts; far++) {
        int hurt =
            !soak_rank.plan->crossrail && atomic_load(&soak_rank.board->touched[far]) >> nic & 1;

        if (far != h && atomic_load(&soak_rank.board->cut[h][nic][far])) {
            cut++;
        } else if (far != h && !hurt) {
            return 0;
        }
    }
    return cut != 0;
}

static int was_cut(int h, int nic)
{
    uint32_t cut = 0;

    for (int far = 0; far < soak_rank.plan->hosts; far++) {
        cut |= atomic_load(&soak_rank.board->cut[h][nic][far]);
    }
    return cut != 0;
}

/* Whether any process of host @h was stopped or killed in this schedule. */
static int stood_still(int h)
{
    const struct soak_plan *p = soak_rank.plan;

    for (int i = 0; i < p->nfaults; i++) {
        if ((p->fault[i].kind == SOAK_STOP || p->fault[i].kind == SOAK_KILLED) &&
            p->fault[i].proc % p->hosts == h) {
            return 1;
        }
    }
    return 0;
}

static int is_hurt(int h, int nic)
{
    return h >= 0 && h < SOAK_HOSTS &&
           (nic < 0 || nic >= SOAK_NICS || atomic_load(&soak_rank.board->touched[h]) >> nic & 1);
}

/* A verdict about what nothing has happened to. One about a path names one end of it, or both. */
static int is_wrong(const struct mx_verdict *v)
{
    int named =
        v->host >= 0 && v->host < soak_rank.plan->hosts && v->nic >= 0 && v->nic < SOAK_NICS;
    uint32_t far = v->far_nic >= 0 && v->far_nic < SOAK_NICS ? 1u << v->far_nic : ~0u;

    switch (v->blame) {
    case MX_NIC:
    case MX_LINK:
        return !named || !(is_hurt(v->host, v->nic) || is_cut_off(v->host, v->nic));
    case MX_PATH:
    case MX_WAY:
        return !named || !(is_hurt(v->host, v->nic) || was_cut(v->host, v->nic) ||
                           is_hurt(v->far_host, v->far_nic) || is_by_spine((unsigned)v->nic, far));
    case MX_PROCESS:
        return v->host < 0 || !(stood_still(v->host) || soak_rank.plan->want == SOAK_KILL);
    default:
        return 0;
    }
}

static void line_count(const char *text)
{
    struct soak_rank_board *b = soak_rank.mine;
    struct mx_verdict v;
    const char *at;
    unsigned n;

    if (mx_line_read(text, &v) == MX_SAID_VERDICT && is_wrong(&v)) {
        atomic_fetch_add(&b->wrong, 1);
        fprintf(stderr, "wrong: %s\n", text);
    }

    if (strstr(text, " life ") && strstr(text, " UP -> DOWN: ") &&
        !strstr(text, " DOWN: closing")) {
        atomic_fetch_add(&b->switches, 1);
        if (is_false(text)) {
            atomic_fetch_add(&b->false_switches, 1);
        }
    } else if ((at = strstr(text, " settled: ")) &&
               sscanf(at, " settled: %u parts to retransmit", &n) == 1) {
        atomic_fetch_add(&b->retransmits, n);
    } else if (strstr(text, " is up: its NIC pair is back")) {
        atomic_fetch_add(&b->returns, 1);
    } else if (strstr(text, "last resort: no RDMA path is left to ")) {
        atomic_fetch_add(&b->resorts, 1);
    } else if (strstr(text, " -> FENCED: soft")) {
        atomic_fetch_add(&b->soft, 1);
    } else if (strstr(text, "neither end could fence")) {
        atomic_fetch_add(&b->unproven, 1);
    } else if ((at = strstr(text, "out-of-band channel listens on ")) &&
               sscanf(at, "out-of-band channel listens on %63s", b->address) == 1) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/* Lines that must not come whatever breaks: a state that cannot be, a record that nobody sends, an
 * arrival that nobody posted. */
static int is_impossible(const char *text)
{
    static const char *const never[] = {" cannot go from ", "malformed message",
                                        "NET/R2 : arrival ", " cannot be packed"};

    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        if (strstr(text, never[i])) {
            return 1;
        }
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
    if (level == ABI_LOG_WARN) {
        snprintf(last_warn, sizeof(last_warn), "%s", text);
    }
    if (level == ABI_LOG_WARN && killed >= 0 &&
        strstr(text, soak_rank.board->rank[killed].address)) {
        atomic_store(&soak_rank.mine->named, 1);
    }
    pthread_mutex_unlock(&lock);
    if (is_impossible(text)) {
        soak_fail("the plugin says: %s", text);
    }
}

const char *soak_last_warn(void)
{
    static _Thread_local char copy[sizeof(last_warn)];

    pthread_mutex_lock(&lock);
    memcpy(copy, last_warn, sizeof(copy));
    pthread_mutex_unlock(&lock);
    return copy;
}
