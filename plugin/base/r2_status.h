/*
 * Status codes of the plugin, grouped by the largest thing that the condition kills. The grouping
 * is the failover decision: nothing below R2_ERR_COMM ends a job.
 */
#ifndef R2_STATUS_H
#define R2_STATUS_H

enum r2_status {
    R2_OK = 0,
    R2_AGAIN, /* not now, nothing lost: call again */

    /* kills a call: the caller passed something wrong */
    R2_ERR_ARG,

    /* kills one incarnation of one path */
    R2_ERR_PATH,

    /* kills every path over one NIC of this host */
    R2_ERR_NIC,

    /* kills a connection: returned to NCCL, ends the job */
    R2_ERR_COMM,   /* no path left, or an error that a retransmission repeats */
    R2_ERR_PEER,   /* the peer process is gone, aborted, or breaks the protocol */
    R2_ERR_CONFIG, /* a policy that cannot be obeyed */
    R2_ERR_SYSTEM, /* memory, threads, descriptors */
    R2_ERR_INTERNAL,
    R2_STATUS_COUNT
};

/* Name of @s for logs; never NULL. Any thread. */
const char *r2_status_name(enum r2_status s);

#endif
