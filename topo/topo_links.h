/*
 * Links of GPUs that no source tells: a text of lines
 *
 *     nvlink 0000:1b:00.0 0000:43:00.0 480000     Mb/s each way between two GPUs, both directions
 *     nvlink * * 3600000                          ... between any two (a switch)
 *     c2c 0009:01:00.0 3600000                    Mb/s each way between a GPU and the CPU of its
 *                                                 NUMA node
 *     # comment
 *
 * in etc/nccl-net-r2/links of a machine or of a captured tree. It comes from an administrator, but
 * is checked like anything from outside.
 */
#ifndef TOPO_LINKS_H
#define TOPO_LINKS_H

#include "topo.h"

#define TOPO_LINKS_FILE "etc/nccl-net-r2/links"
#define TOPO_LINKS_MAX  32768 /* bytes */

/*
 * Enters the lines of @text into the finished snapshot @t. A GPU that is not there is passed over
 * (the file may serve several kinds of machine). 0, or -1 with the line and what is wrong in @why;
 * then nothing of @t has changed. Pure.
 */
int topo_links_apply(struct topo *t, const char *text, char *why, size_t why_len);

#endif
