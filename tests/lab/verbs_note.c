/* Observations: what was seen, when first and how often. Printed as one JSON object per line. */
#include "tests/lab/verbs_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kind_names[] = {
    [VW_WC] = "wc",         [VW_EVENT] = "event", [VW_PORT] = "port", [VW_GID] = "gid",
    [VW_DEVICE] = "device", [VW_QP] = "qp",       [VW_CALL] = "call", [VW_PROGRESS] = "progress",
    [VW_PEER] = "peer",     [VW_SEQ] = "order",
};

static const char *const status_names[] = {
    [IBV_WC_SUCCESS] = "SUCCESS",
    [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
    [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
    [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
    [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
    [IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
    [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
    [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
    [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
    [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
    [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
    [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
    [IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR",
    [IBV_WC_FATAL_ERR] = "FATAL_ERR",
    [IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR",
    [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
};

static const char *const event_names[] = {
    [IBV_EVENT_CQ_ERR] = "CQ_ERR",
    [IBV_EVENT_QP_FATAL] = "QP_FATAL",
    [IBV_EVENT_QP_REQ_ERR] = "QP_REQ_ERR",
    [IBV_EVENT_QP_ACCESS_ERR] = "QP_ACCESS_ERR",
    [IBV_EVENT_COMM_EST] = "COMM_EST",
    [IBV_EVENT_SQ_DRAINED] = "SQ_DRAINED",
    [IBV_EVENT_PATH_MIG] = "PATH_MIG",
    [IBV_EVENT_PATH_MIG_ERR] = "PATH_MIG_ERR",
    [IBV_EVENT_DEVICE_FATAL] = "DEVICE_FATAL",
    [IBV_EVENT_PORT_ACTIVE] = "PORT_ACTIVE",
    [IBV_EVENT_PORT_ERR] = "PORT_ERR",
    [IBV_EVENT_LID_CHANGE] = "LID_CHANGE",
    [IBV_EVENT_PKEY_CHANGE] = "PKEY_CHANGE",
    [IBV_EVENT_SM_CHANGE] = "SM_CHANGE",
    [IBV_EVENT_SRQ_ERR] = "SRQ_ERR",
    [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ_LIMIT_REACHED",
    [IBV_EVENT_QP_LAST_WQE_REACHED] = "QP_LAST_WQE_REACHED",
    [IBV_EVENT_CLIENT_REREGISTER] = "CLIENT_REREGISTER",
    [IBV_EVENT_GID_CHANGE] = "GID_CHANGE",
};

static const char *const state_names[] = {
    [IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
    [IBV_QPS_RTS] = "RTS",     [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQE",
    [IBV_QPS_ERR] = "ERR",
};

static const char *name_of(const char *const *table, size_t n, int value)
{
    return value >= 0 && (size_t)value < n && table[value] ? table[value] : "?";
}

const char *vw_status_name(int status)
{
    return name_of(status_names, sizeof status_names / sizeof *status_names, status);
}

const char *vw_event_name(int type)
{
    return name_of(event_names, sizeof event_names / sizeof *event_names, type);
}

const char *vw_state_name(int state)
{
    return name_of(state_names, sizeof state_names / sizeof *state_names, state);
}

const char *vw_errno_name(int errnum)
{
    const char *name = strerrorname_np(errnum);

    return name ? name : "?";
}

static double ms(uint64_t from, uint64_t to)
{
    return (double)(int64_t)(to - from) / (double)VW_NSEC_MS;
}

static uint64_t last_ok(const struct vw *w)
{
    return w->o.recv_only || w->recv.last_ok > w->send.last_ok ? w->recv.last_ok : w->send.last_ok;
}

/* Words come from tables: nothing has to be escaped. */
void vw_note_at(struct vw *w, enum vw_kind kind, uint64_t at, const char *what)
{
    struct vw_note *n;

    for (n = w->note; n < w->note + w->notes; n++) {
        if (n->kind == kind && strcmp(n->what, what) == 0) {
            n->count++;
            n->last = at;
            return;
        }
    }
    if (w->notes == VW_NOTES) {
        fprintf(stderr, "verbs_watch: more than %d kinds of observations; %s %s is lost\n",
                VW_NOTES, kind_names[kind], what);
        return;
    }
    *n = (struct vw_note){
        .kind = kind, .first = at, .last = at, .count = 1, .since_ok = at - last_ok(w)};
    snprintf(n->what, sizeof n->what, "%s", what);
    w->notes++;
    printf("{\"first\": \"%s\", \"what\": \"%s\", \"run_ms\": %.3f}\n", kind_names[kind], what,
           ms(w->start, at));
    fflush(stdout);
}

void vw_note(struct vw *w, enum vw_kind kind, const char *fmt, ...)
{
    uint64_t now = vw_now();
    char what[VW_NAME_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    vw_note_at(w, kind, now, what);
}

void vw_mark(struct vw *w, const char *name, uint64_t at, bool tell)
{
    char line[VW_NAME_MAX + 8];
    struct vw_mark *m;

    for (m = w->mark; m < w->mark + w->marks; m++) {
        if (strcmp(m->name, name) == 0) {
            return;
        }
    }
    if (w->marks == VW_MARKS) {
        return;
    }
    if (w->marks++ == 0) {
        w->send.before = w->send.ok;
        w->recv.before = w->recv.ok;
    }
    m->at = at;
    snprintf(m->name, sizeof m->name, "%s", name);
    printf("{\"marked\": \"%s\", \"run_ms\": %.3f}\n", m->name, ms(w->start, at));
    fflush(stdout);
    if (tell) {
        snprintf(line, sizeof line, "m %s\n", m->name);
        vw_tell(w, line);
    }
}

static void flow_print(const struct vw *w, const char *name, const struct vw_flow *f, uint64_t zero)
{
    double before = ms(w->start, zero) / 1000, after = ms(zero, vw_now()) / 1000;

    printf(
        "{\"flow\": \"%s\", \"posted\": %llu, \"ok\": %llu, \"failed\": %llu, \"before_per_s\": %.1f, "
        "\"after_per_s\": %.1f, \"last_ok_ms\": %.3f, \"gap_ms\": %.3f, \"gap_at_ms\": %.3f}\n",
        name, (unsigned long long)f->posted, (unsigned long long)f->ok,
        (unsigned long long)f->failed, before > 0 ? (double)f->before / before : 0,
        after > 0 ? (double)(f->ok - f->before) / after : 0, ms(zero, f->last_ok), ms(0, f->gap_ns),
        f->gap_ns ? ms(zero, f->gap_at) : 0);
}

void vw_notes_print(struct vw *w)
{
    uint64_t zero = w->marks ? w->mark[0].at : w->start;

    for (uint32_t i = 0; i < w->marks; i++) {
        printf("{\"mark\": \"%s\", \"t_ms\": %.3f, \"run_ms\": %.3f}\n", w->mark[i].name,
               ms(zero, w->mark[i].at), ms(w->start, w->mark[i].at));
    }
    for (uint32_t i = 0; i < w->notes; i++) {
        const struct vw_note *n = &w->note[i];

        printf(
            "{\"seen\": \"%s\", \"what\": \"%s\", \"count\": %u, \"t_ms\": %.3f, \"last_ms\": %.3f, "
            "\"since_ok_ms\": %.3f}\n",
            kind_names[n->kind], n->what, n->count, ms(zero, n->first), ms(zero, n->last),
            ms(0, n->since_ok));
    }
    flow_print(w, "send", &w->send, zero);
    flow_print(w, "recv", &w->recv, zero);
    fflush(stdout);
}

/* ---- calls that block ---- */

static char guard_line[128];
static size_t guard_len;

static void on_alarm(int sig)
{
    ssize_t n = write(STDOUT_FILENO, guard_line, guard_len);

    _exit(n == (ssize_t)guard_len ? 3 : 4);
}

void vw_guard(const char *what)
{
    struct sigaction sa = {.sa_handler = on_alarm};

    alarm(0);
    if (!what) {
        return;
    }
    guard_len = (size_t)snprintf(guard_line, sizeof guard_line,
                                 "{\"blocked\": \"%s\", \"after_s\": %u}\n", what, VW_BLOCK_S);
    sigaction(SIGALRM, &sa, NULL);
    alarm(VW_BLOCK_S);
}
