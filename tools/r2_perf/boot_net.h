/* Sockets under boot.c: finding rank 0, whole-message reads and writes. */
#ifndef R2_PERF_BOOT_NET_H
#define R2_PERF_BOOT_NET_H

#include "tools/r2_perf/boot.h"

/* 0 when all @n bytes were moved, -1 on error or end of stream. May block. SIGPIPE is never raised.
 */
int boot_net_read(int fd, void *data, size_t n);
int boot_net_write(int fd, const void *data, size_t n);
/* Rank 0: a listening socket at the place that the others will look at. -1 with the reason in
 * @error. */
int boot_net_listen(const struct boot_place *place, char *error, size_t error_bytes);
/* Rank 0: the next connection, or -1 at @deadline_ns. */
int boot_net_accept(int listen_fd, uint64_t deadline_ns);
/* The stream ends when the machine at its other end has answered nothing for @limit_ns, up to 3 s
 * more, and 27 hours at most: a process that has ended closes it, a machine that has ended does
 * not. */
void boot_net_keep(int fd, uint64_t limit_ns);
/* Others: a connection to rank 0; tried again until @deadline_ns, as rank 0 may start later. -1
 * with the reason. */
int boot_net_connect(const struct boot_place *place, uint64_t deadline_ns, char *error,
                     size_t error_bytes);

#endif
