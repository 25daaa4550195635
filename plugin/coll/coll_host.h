/* Which host this is, for telling ranks of one host from others. Pure but for what it reads. */
#ifndef COLL_HOST_H
#define COLL_HOST_H

#include <stdint.h>

/* The same for all processes that NCCL takes to be on one host: NCCL_HOSTID where it is set, else
 * the host's name and the boot id of its kernel. Never 0. May block: reads a file. */
uint64_t coll_host_key(void);

#endif
