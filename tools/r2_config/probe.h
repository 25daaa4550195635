/*
 * Loads a net plugin as NCCL would and asks it what NCCL would ask first, in a child process: the
 * plugin's code may crash or hang without taking the caller along.
 */
#ifndef R2_CONFIG_PROBE_H
#define R2_CONFIG_PROBE_H

#include <limits.h>

#define PROBE_LINES   64
#define PROBE_DEVICES 64

struct probe {
    char tried[2][512];  /* why each file name was not it; "" */
    char path[PATH_MAX]; /* what was loaded; "": nothing */
    char tables[128];    /* ncclNetPlugin_vN found in it */
    char name[64];       /* of the newest table of version 8 or later; "" */
    int asked;           /* init was called */
    int init_rc, devices_rc, ndev;
    int listened, listen_rc; /* listen was called on the first device */
    double init_ms;
    char device[PROBE_DEVICES][64];
    int devices;
    char *line[PROBE_LINES]; /* what init logged: "WARN text", "INFO text" */
    int lines;
    char end[128]; /* how the child ended, when it did not end well; "" */
};

/*
 * @name as in NCCL_NET_PLUGIN: a file, or the middle of libnccl-net-NAME.so. init is called only
 * where the newest table is named @ours. 0, or -1 with errno when no child could be made. Main
 * thread, before the process has others; waits for the child, @limit_ms at most. The caller frees
 * with probe_free().
 */
int probe_run(struct probe *p, const char *name, const char *ours, int limit_ms);
void probe_free(struct probe *p);

#endif
