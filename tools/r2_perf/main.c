/* r2_perf: nccl-tests for a net plugin. A call starts ranks of itself, or is a rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/r2_perf/launch.h"
#include "tools/r2_perf/opts.h"
#include "tools/r2_perf/plugin.h"
#include "tools/r2_perf/rank.h"
#include "tools/r2_perf/util.h"

int main(int argc, char **argv)
{
    struct opts o;
    struct boot_place place;
    char error[600];
    plugin_conf_read();
    if (opts_parse(&o, argc, argv, error, sizeof(error)) != 0) {
        fprintf(stderr, "%s: %s (--help lists all options)\n", program_invocation_short_name,
                error);
        return PERF_USAGE;
    }
    if (o.help) {
        opts_help_print(stdout);
        return PERF_OK;
    }
    switch (launch_role_get(&o, &place, error, sizeof(error))) {
    case LAUNCH_RANK:
        return rank_run(&o, &place);
    case LAUNCH_PARENT:
        return launch_run(&o);
    default:
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, error);
        return PERF_USAGE;
    }
}
