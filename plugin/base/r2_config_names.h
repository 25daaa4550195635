/*
 * Names of variables that are no option's: which are slips of the pen, and which NCCL's own
 * transport reads.
 */
#ifndef R2_CONFIG_NAMES_H
#define R2_CONFIG_NAMES_H

/*
 * Is @name, which is no row's, likely to be meant for one? 1 with the row's name in *near, or NULL
 * there where only the prefix is ours; 0: it is somebody else's. Of NCCL's own rows only what
 * differs in one letter counts: their neighbours are other people's. Pure.
 */
#include <stdbool.h>

int r2_config_name_odd(const char *name, const char **near);

/* A variable of NCCL's IB transport, of 2.4 to 2.30, that is no row: it has no effect here. Pure.
 */
bool r2_config_name_is_nccls(const char *name);

#endif
