#include "r2_admin_files.h"

#include "base/r2_rundir.h"
#include "r2_drain.h"
#include "r2_failback.h"
#include "r2_rehearse.h"

/* The directory first: a file that comes behind that shows in it with the next call. */
void r2_admin_files_poll(struct r2_inst *inst, int rung)
{
    if (inst->share.run_dir[0] && !rung) {
        inst->share.no_new_file = r2_rundir_dir_same(inst->share.run_dir, &inst->share.dir);
    }
    r2_rehearse_poll(inst);
    r2_drain_poll(inst);
    r2_failback_poll(inst);
    inst->share.no_new_file = 0; /* who else polls looks for each */
}
