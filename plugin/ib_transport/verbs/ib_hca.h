/*
 * NCCL_IB_HCA: which RDMA devices and ports to use. Pure.
 *
 *     [^][=]name[:port[:rail[:plane]]],...      '^': all but these; '=': whole names, otherwise
 * beginnings of names
 *
 * Empty fields and -1 stand for "any"; entries without a name are passed over. NCCL's own transport
 * reads it in the same way.
 */
#ifndef IB_HCA_H
#define IB_HCA_H

#include <stddef.h>

#define IB_HCA_MAX 64

struct ib_hca_entry {
    char name[64];
    int port;  /* -1: any */
    int rail;  /* -1: not given */
    int plane; /* -1: not given; what NCCL is told; no matter to us */
};

struct ib_hca_filter {
    int exclude, exact;
    int count; /* 0: chooses everything, or with exclude nothing */
    struct ib_hca_entry entry[IB_HCA_MAX];
};

/* -1 with the faulty entry and the reason in @why; @f then chooses everything. */
int ib_hca_parse(struct ib_hca_filter *f, const char *spec, char *why, size_t why_len);

/* Is port @port of device @name chosen? @rail (may be NULL) becomes the rail its entry gives, -1
 * when it gives none. */
int ib_hca_match(const struct ib_hca_filter *f, const char *name, int port, int *rail);

/* Position in the list of the first entry that matches, -1: for lists that say an order
 * (NCCL_R2_BACKUP_NICS). Ignores
 * '^'. */
int ib_hca_rank(const struct ib_hca_filter *f, const char *name, int port);

#endif
