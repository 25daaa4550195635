/*
 * What happens in this process, made known: the statistics file and the events
 * (docs/design-stat.md, docs/events.md). Service thread, unless said otherwise; nothing waits but
 * for a local file system. Without a run directory, or with both switched off, all of it does
 * nothing.
 */
#ifndef R2_REPORT_H
#define R2_REPORT_H

#include <stdint.h>

#include "r2_config.h"
#include "r2_inst.h"

/* Begins, with the event "start". Why something cannot be written is logged once. At init. */
void r2_report_open(struct r2_inst *inst, const struct r2_job *job);
/* The event "stop" with what happened, and the statistics file goes. The service thread has
 * stopped. A second call does nothing. */
void r2_report_stop(struct r2_inst *inst);
void r2_report_free(struct r2_inst *inst);

/* End of a turn: says what is complete, writes what has changed, or, with @look, whatever it is.
 * Returns when it wants another turn (ns). */
uint64_t r2_report_step(struct r2_inst *inst, uint64_t now, int look);

/* What has become of @c: its lives, what of them is settled, its end. Before and after a step of
 * it, gate held. */
void r2_report_comm(struct r2_comm *c);
/* The present life of (@p) is put away with its counters. */
void r2_report_life_over(struct r2_comm *c, int p);
/* @c is going. */
void r2_report_comm_gone(struct r2_comm *c);

/* @who has said @w, which is new here. Kept if it is about a NIC pair of this process: the rest of
 * the job has its own history. */
void r2_report_news(struct r2_inst *inst, const struct probe_word *w, const char *who);

/* Our NIC changed its state; @why in a few words. */
void r2_report_nic(struct r2_inst *inst, int nic, const char *why);
/* Our NIC is drained, or not any more. */
void r2_report_drain(struct r2_inst *inst, int nic, int on, const char *why);

#define R2_REPORT_EVIDENCE 18 /* lines */
#define R2_REPORT_COUNTERS 28

/* Which component is to blame. Texts are copied; NULL: not known. */
struct r2_report_verdict {
    const char *code, *blame;
    int severity; /* 0 info, 1 warning, 2 critical: enum r2_event_severity */
    int nic;      /* of ours; -1: none */
    const char *peer_host, *peer_nic;
    uint64_t since_ns; /* of the fault, r2_now(); 0: not known. The event itself is of now */
    const char *how;
    int confidence; /* percent */
    const char *evidence[R2_REPORT_EVIDENCE];
    int n_evidence;
    const char *counter[R2_REPORT_COUNTERS]; /* error counters of @nic that have grown since its
                                                first connection */
    uint64_t counter_by[R2_REPORT_COUNTERS];
    int n_counters;
    const char *action, *recommend;
    const char *brief; /* at most 80 characters */
    const char
        *revises; /* code of an earlier verdict of this process about the same fault; NULL: none */
    uint64_t revises_seq; /* what r2_report_verdict() returned for it */
};
/* Returns the number of its event in this process; 0: there are no events. */
uint64_t r2_report_verdict(struct r2_inst *inst, const struct r2_report_verdict *v);

/*
 * Work requests of path @p had no completion for @ns, and the life goes on (r2_stall.h). @over: it
 * has ended; else it lasts, and only the statistics show it.
 */
void r2_report_stall(struct r2_comm *c, int p, uint64_t ns, int over);

#endif
