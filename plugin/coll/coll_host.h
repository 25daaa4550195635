/* Which host this is, for telling ranks of one host from others. */
#ifndef COLL_HOST_H
#define COLL_HOST_H

#include <stdint.h>

/* The same for all processes that NCCL takes to be on one host: @hostid, NCCL_HOSTID, where it is
 * not empty, else the host's name and the boot id of its kernel. Never 0. May block: reads a file.
 */
uint64_t coll_host_key(const char *hostid);

#endif
