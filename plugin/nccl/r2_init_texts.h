/*
 * Options whose rows only know that they are text: lists of NICs, addresses, where the topology
 * comes from. What is refused here ends the job at listen; r2_config says the same of a value
 * before a job has it.
 */
#ifndef R2_INIT_TEXTS_H
#define R2_INIT_TEXTS_H

#include <stddef.h>

#include "base/r2_config.h"
#include "topo/topo_load.h"

/* The value in @cfg of row @row (r2_config_rows): 0, also for rows that are not such; or -1 with
 * variable, value and what is allowed in @why. Pure. */
int r2_init_text_check(const struct r2_config *cfg, int row, char *why, size_t why_len);

/* @refuse gets the reason of each row that cannot be obeyed. Pure. */
void r2_init_texts_check(const struct r2_config *cfg, void (*refuse)(void *arg, const char *why),
                         void *arg);

/* A value of NCCL_R2_TOPO: 1, and the source, which keeps @text; 0: none is wanted; -1: none of
 * what is allowed. Pure. */
int r2_init_topo_source(const char *text, struct topo_source *source);

#endif
