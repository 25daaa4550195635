/*
 * The last path of a connection that stands still (docs/diagnosis.md): it does not end by silence,
 * so that nothing else opens a case before RC gives up, half a minute later by default. Service
 * thread; nothing blocks.
 */
#ifndef R2_LAST_PATH_H
#define R2_LAST_PATH_H

struct r2_subscriber;

/* on_stall. */
extern const struct r2_subscriber r2_last_path_subscriber;

#endif
