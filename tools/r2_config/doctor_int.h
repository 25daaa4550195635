/*
 * Between the files of the doctor. Everything here runs on the main thread.
 */
#ifndef R2_CONFIG_DOCTOR_INT_H
#define R2_CONFIG_DOCTOR_INT_H

#include <limits.h>

#include "ib_transport/verbs/ib_device.h"
#include "tools/r2_config/values.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor {
    const char *root;
    int limit_s; /* of one check */
    struct values *values;
    struct ib_verbs verbs;
    struct ib_nics nics; /* count 0 when there are none */
    int listed;          /* RDMA devices that libibverbs lists */
    int kernel_nics;   /* of these, how many are the kernel's; the rest is software of a process */
    int sysfs_devices; /* RDMA devices that the kernel shows, whether or not this process may use
                          them */
    int dmabuf;        /* a NIC takes GPU memory by DMA-BUF */
    int peer_memory;   /* a NIC takes pointers of a GPU */
};

/* One line. @todo: NULL when there is nothing to do. */
void doctor_say(enum doctor_level level, const char *what, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int doctor_count(enum doctor_level level);
/* Has a line said just this, apart from its hint? */
int doctor_said(const char *text);
/* What to do about a warning of the plugin's. */
void doctor_hint(const char *text, char *out, size_t len);

/* What is done from now on may take @limit_s, then the doctor ends; that it takes long is said
 * before. */
void doctor_limit_start(int limit_s);

/* Path below the root of @d. */
void doctor_path(const struct doctor *d, const char *path, char *out, size_t len);

/* doctor_plugin.c: options, the library by NCCL's rules, and what its init says. */
void doctor_options(struct doctor *d);
void doctor_selection(struct doctor *d);
void doctor_plugin(struct doctor *d);
/* doctor_rdma.c: libibverbs, device files, NICs. doctor_nics fills d->nics and the counts;
 * doctor_rdma_end closes. */
void doctor_verbs(struct doctor *d);
void doctor_device_files(struct doctor *d);
void doctor_nics(struct doctor *d);
void doctor_rdma_end(struct doctor *d);
/* doctor_ask.c: which devices answer, asked by children; those that do not even open are not listed
 * afterwards. hangs: whether @dev is such a one. */
void doctor_ask(struct doctor *d);
int doctor_hangs(const char *dev);
/* doctor_verbs.c: versions of the libibverbs at @path, which has been loaded, and of the providers
 * beside it. After doctor_verbs has counted. */
void doctor_versions(const struct doctor *d, const char *path);
/* doctor_host.c: the rest of the machine. */
void doctor_memlock(struct doctor *d);
void doctor_oob(struct doctor *d);
void doctor_conf_files(struct doctor *d);
void doctor_lock(struct doctor *d);
void doctor_container(struct doctor *d);
void doctor_run_dir(struct doctor *d);
void doctor_gpu(struct doctor *d);

#endif
