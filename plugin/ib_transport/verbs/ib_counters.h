/*
 * Error counters of a port, as sysfs has them. They count from boot, saturate, and may be reset by
 * anybody: only their growth between two readings says something.
 */
#ifndef IB_COUNTERS_H
#define IB_COUNTERS_H

#include <stdint.h>

#define IB_COUNTERS      28
#define IB_COUNTERS_LINK 6 /* the first: what a cable, a transceiver or a port does to a link */

struct ib_counters {
    uint64_t value[IB_COUNTERS];
    uint32_t known; /* bit per counter: it is there, and is a number */
};

/* "symbol_error", ...: the file's name; static. @i below IB_COUNTERS. */
const char *ib_counters_name(int i);

/* Whether the device has any, below its directory (ibv_device.ibdev_path). The driver is not
 * called; any thread. */
int ib_counters_there(const char *ibdev_path, int port);

/* Reads all of them. Every file is a call of the driver, which may block on a sick device: on a
 * worker. */
void ib_counters_read(const char *ibdev_path, int port, struct ib_counters *out);

/* By how much counter @i has grown; 0: not at all, not known in both, or reset between them. Pure.
 */
uint64_t ib_counters_grown(const struct ib_counters *before, const struct ib_counters *after,
                           int i);

#endif
