/* What the suites about drains and about other processes of the host share: a connection, its
 * drains, a run directory. */
#ifndef DRAIN_RIG_H
#define DRAIN_RIG_H

#include "tests/unit/failback_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/admin/r2_drain.h"
#include "plugin/admin/r2_host_share.h"
#include "plugin/probe/health/r2_pair.h"
#include "plugin/base/r2_rundir.h"

/* As if the administrator had said so: bit per NIC. */
static inline void drain(int side, uint32_t nics)
{
    struct r2_inst *inst = rig->side[side].inst;
    int n = 0;

    inst->cfg.drain[0] = '\0';
    for (uint32_t m = nics; m; m &= m - 1) {
        n += snprintf(inst->cfg.drain + n, sizeof(inst->cfg.drain) - (size_t)n, "%sfab%d",
                      n ? "," : "=", __builtin_ctz(m));
    }
    rig_enter(&rig->side[side]);
    r2_drain_poll(inst);
    ck_assert_uint_eq(inst->drain.nics, nics);
    rig_kick(&rig->side[side]);
}

static inline uint64_t posted(int side)
{
    uint64_t n = 0;

    for (int p = 0; p < comm(side)->conn.npaths; p++) {
        n += comm(side)->conn.path[p].count.wrs;
    }
    return n;
}

static char dir[64];

static inline void file_write_at(const char *tmp, const char *text, unsigned mode)
{
    FILE *f = fopen(tmp, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fchmod(fileno(f), mode), 0);
    fclose(f);
}

static inline void file_publish(const char *tmp)
{
    char name[128];

    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.drain", dir, (unsigned)geteuid());
    ck_assert_int_eq(rename(tmp, name), 0);
}

static inline void file_write(const char *text, unsigned mode)
{
    char tmp[128];

    snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
    file_write_at(tmp, text, mode);
    file_publish(tmp);
}

static inline void host_dir(int side)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-drain-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(rig->side[side].inst->share.run_dir, sizeof(rig->side[side].inst->share.run_dir), "%s",
             dir);
}

static inline void host_dir_remove(void)
{
    char cmd[128];

    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}

#endif
