#include "r2_config_names.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "r2_conf_file.h"
#include "r2_config.h"

#define OURS       "NCCL_R2_"
#define NCCLS      "NCCL_IB_"
#define OURS_NEAR  2
#define NCCLS_NEAR 1

static int begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool r2_config_name_is_nccls(const char *name)
{
    static const char *const known[] = {
        "CUDA_SUPPORT",
        "DATA_DIRECT",
        "DEVICE_PCI_ORDER",
        "ECE_ENABLE",
        "FIFO_TC",
        "GDR_LEVEL",
        "MERGE_NICS",
        "MERGE_VFS",
        "MQP_RETRY_ALL",
        "MQP_RETRY_CNT",
        "MQP_RETRY_SLEEP_MSEC",
        "OOO_RQ",
        "PREPOST_RECEIVE_WORK_REQUESTS",
        "QUERY_PORT_SPEED",
        "RECEIVER_SIDE_MATCHING_SCHEME",
        "RESILIENCY_PORT_FAILOVER",
        "RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
        "RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
        "RESILIENCY_PORT_RECOVERY",
        "RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT",
        "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL",
        "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE",
        "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE",
        "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT",
        "RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX",
        "RESILIENCY_PORT_RECOVERY_START_DELAY",
        "RETURN_ASYNC_EVENTS",
        "ROUTABLE_FLID_GID_INDEX",
        "SUBNET_AWARE_ROUTING",
        "SUBNET_PREFIX_LEN",
        "USE_INLINE",
        "WARN_RAIL_LOCAL",
    };

    if (!begins(name, NCCLS)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name + strlen(NCCLS), known[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The nearest row whose name begins with @prefix, at most @limit away; NULL. */
static const char *row_near(const char *name, const char *prefix, int limit)
{
    int n, least = limit + 1;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    const char *best = NULL;

    for (int i = 0; i < n; i++) {
        int d = begins(rows[i].name, prefix) ? r2_conf_name_distance(name, rows[i].name, limit)
                                             : limit + 1;

        if (d < least) {
            least = d;
            best = rows[i].name;
        }
    }
    return best;
}

int r2_config_name_odd(const char *name, const char **near)
{
    *near = row_near(name, OURS, OURS_NEAR);
    if (*near != NULL || begins(name, OURS)) {
        return 1;
    }
    if (strncasecmp(name, "NCCL", 4) != 0 || r2_config_name_is_nccls(name)) {
        return 0;
    }
    *near = row_near(name, NCCLS, NCCLS_NEAR);
    return *near != NULL;
}
