/* Set-up of a connection (docs/architecture.md): messages, which paths, building. Service thread,
 * gate held, unless said otherwise or pure; nothing blocks. */
#ifndef R2_SETUP_H
#define R2_SETUP_H

#include "core/r2_inst.h"

/* A blocking verbs job of one path. */
struct r2_build {
    struct ib_job job; /* first */
    struct r2_comm *comm;
    int p;
    int connect; /* 0: create, 1: connect */
    int rc;
    int late; /* set-up went on without it */
    struct ib_path_addr peer;
};

/* The set-up of one connection. Service thread, but for what says otherwise */
struct r2_setup_conn {
    uint64_t since, build_since; /* ns */
    uint32_t listen_id;
    struct r2_oob_name peer_name; /* S: from the handle */
    uint8_t given;    /* S: connect has handed it, or its failure, to NCCL, or NCCL polls it no
                         more; inst->lock */
    uint64_t over_at; /* ns: set-up was done, or failed; 0: not yet, or it was checked since whether
                         NCCL has it. Service thread */
    uint8_t ready;    /* R: paths that stand */
    struct fo_rep rep;   /* S: what R offered. R: what we offered */
    struct fo_conf conf; /* S: what we answered. R: what S answered */
    struct r2_build build[IB_MAX_PATHS];
    void *ctl_src_mem;
};

/* Goes on as far as it can; returns the next deadline (ns). */
uint64_t r2_setup_step(struct r2_comm *c, uint64_t now);
/* Records of the exchange, checked; @peer is held by the caller. REQ: no gate, there is no
 * connection yet. */
void r2_setup_on_req(struct r2_inst *inst, struct r2_peer *peer, const struct fo_req *m);
void r2_setup_on_rep(struct r2_comm *c, const struct fo_rep *m);
void r2_setup_on_conf(struct r2_comm *c, const struct fo_conf *m);
/* The channel to the peer stands again. R: READY once more where nothing has come yet: S may have
 * given up meanwhile, and its REFUSE, which is not repeated, be lost with the channel. */
void r2_setup_on_channel(struct r2_comm *c);
void r2_setup_on_ready(struct r2_comm *c, const struct fo_ready *m);
/* Ends it with a reason, of which the peer and, at R, the listener are notified. */
void r2_setup_fail(struct r2_comm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A path that has just come up: whether its NIC or its queue pair failed while it was being built.
 * Then it goes down at once. */
void r2_setup_check_path(struct r2_comm *c, int p);
/* Warns once where the primary NIC pair has fewer than @wanted queue pairs. */
void r2_setup_check_qps(struct r2_comm *c, int wanted);
const char *r2_setup_name(enum r2_setup s);
/* What is announced of our NICs at set-up of a connection whose own is @dev: usable says which may
 * be backups, larger ones first. Returns how many. */
int r2_setup_nics(struct r2_inst *inst, int dev, struct fo_nic out[IB_MAX_NICS]);
/* NIC @nic carries for connections of NIC @dev only where no other does: TCP, and with
 * NCCL_R2_LAST_RESORT an RDMA NIC that is no backup of @dev, being of another kind. Thread:
 * service. Does not block. Each end asks for itself, S once more when it has R's answer: where a
 * port has become of another link layer meanwhile, one end prefers another path than the other
 * does, and no more. */
bool r2_setup_is_last(struct r2_inst *inst, int dev, int nic);
/* Deduces the paths of a connection from both hosts' NICs; pure. Returns how many: where the NIC of
 * either end is one over TCP, that path alone, or 0 where the other end has none like it. */
int r2_setup_paths(const struct fo_nic *s_nic, int s_n, int s_dev, const struct fo_nic *r_nic,
                   int r_n, int r_dev, int any_rail, uint8_t s_out[IB_MAX_PATHS],
                   uint8_t r_out[IB_MAX_PATHS]);

/*
 * Adds paths over the @n NIC pairs of the list, so that each has up to @qps, the first one first,
 * while there is room. Pure. Returns how many paths there are.
 */
int r2_setup_more(uint8_t s_out[IB_MAX_PATHS], uint8_t r_out[IB_MAX_PATHS], int n, int qps);

/* Building (r2_setup_build.c). */
void r2_build_submit(struct r2_comm *c, int p,
                     int connect); /* create (0) or connect (1) path p on its device's worker */
/* Whether building has come to an end: every job is back, or one path stands and the time is over;
 * then late jobs are given up. */
int r2_build_over(struct r2_comm *c, uint64_t now, uint64_t *next);
int r2_build_stands(const struct r2_comm *c, int p);

#endif
