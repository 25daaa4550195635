/* What NCCL_TUNER_PLUGIN has to say for NCCL to ask this plugin's tuner, which makes shadows use
 * their tree. */
#ifndef COLL_TUNER_H
#define COLL_TUNER_H

#include <stdbool.h>
#include <stddef.h>

/*
 * @net: a value of NCCL_NET_PLUGIN, one name or several behind commas, each by NCCL's rules the
 * file itself or the middle of libnccl-net-NAME.so; NULL: not set. Writes into @file, of @bytes,
 * the first that is this plugin, as a file. False: none is, or it does not fit; @file is empty
 * then. Pure.
 */
bool coll_tuner_file(const char *net, char *file, size_t bytes);

#endif
