/* QEMU's monitor (QMP). In the lab's run folder. Blocks up to the limits given. Errors are printed
 * and named. */
#ifndef R2_LAB_QMP_H
#define R2_LAB_QMP_H

#include <jansson.h>

#include "tests/lab/lab_util.h"

struct lab_qmp {
    const char *host;
    int fd;
    struct lab_buf rx;
};

/* Connects to the monitor of VM @host. One client at a time: waits until the one before has left.
 * Returns 0 or -1. */
int lab_qmp_open(struct lab_qmp *q, const char *host);
void lab_qmp_close(struct lab_qmp *q);

/* Runs @command with @arguments (stolen; NULL: none). Returns what the monitor returned, which the
 * caller decrefs, or NULL. */
json_t *lab_qmp_call(struct lab_qmp *q, const char *command, json_t *arguments);
/* The same for one whose result does not matter. Returns 0 or -1. */
int lab_qmp_do(struct lab_qmp *q, const char *command, json_t *arguments);

/* Waits until the VM has let go of device @id; at once when there is none. Returns 0 or -1. */
int lab_qmp_await_deleted(struct lab_qmp *q, const char *id, uint64_t deadline);

#endif
