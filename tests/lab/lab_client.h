/* Requests to the agent of a VM, from outside. All work in the lab's run folder, which is the
 * current one. All block, never beyond the deadline (ns of lab_clock_now; UINT64_MAX: none),
 * but for LAB_WHY_NS and the monitor's limits where a command is to be explained. */
#ifndef R2_LAB_CLIENT_H
#define R2_LAB_CLIENT_H

#include "tests/lab/lab_wire.h"

/* Exit statuses besides the command's own. */
#define LAB_STATUS_LIMIT 124 /* the limit was reached; explained on standard error, killed */
#define LAB_STATUS_LOST  125 /* the VM cannot be reached, or went away meanwhile */

/* How long an agent may take to answer the first word; a busy VM needs a second or two. */
#define LAB_HELLO_NS (20 * LAB_NS_PER_S)
/* How long it may take to say what a command waits for whose limit is reached. */
#define LAB_WHY_NS (10 * LAB_NS_PER_S)

struct lab_exec {
    const char *host, *cwd;
    char **argv; /* NULL at the end */
    const char *flags;
    uint64_t deadline;
    /* Where output goes: standard output and error when @capture is NULL, else both go there. The
     * caller frees it. */
    struct lab_buf *capture;
};

/* Runs a command in a VM. Returns its exit status, LAB_STATUS_LIMIT, or LAB_STATUS_LOST (the reason
 * was printed). */
int lab_client_exec(const struct lab_exec *e);

/* Waits until trigger @name is fired in @host. Returns the connection, on which lab_client_done has
 * to be called, or -LAB_STATUS_LIMIT or -LAB_STATUS_LOST (the reason was printed). */
int lab_client_wait(const char *host, const char *name, uint64_t deadline);
/* Tells the one who fired the trigger what came of it, and closes the connection. */
void lab_client_done(int fd, bool ok, const char *text);

#endif
