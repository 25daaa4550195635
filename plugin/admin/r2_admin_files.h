/* The files by which administrators direct the processes of a host: drains, fail-back, rehearsals.
 */
#ifndef R2_ADMIN_FILES_H
#define R2_ADMIN_FILES_H

#include "core/r2_inst.h"

/*
 * Takes up what they say anew. Where nothing has come into the run directory since the last call, a
 * file that was not there then is not looked for; with @rung, for which somebody has written one,
 * each is. Service thread; reads files.
 */
void r2_admin_files_poll(struct r2_inst *inst, int rung);

#endif
