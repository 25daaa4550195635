/* What a schedule asks of the plugin, as the options that a user would set. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void option_text(struct r2_config *cfg, const char *name, const char *text)
{
    char why[200];

    if (r2_config_set(cfg, name, text, why, sizeof(why)) != 0) {
        fprintf(stderr, "r2_sim: option %s=%s: %s\n", name, text, why);
        exit(2);
    }
}

static void option(struct r2_config *cfg, const char *name, int value)
{
    char text[24];

    snprintf(text, sizeof(text), "%d", value);
    option_text(cfg, name, text);
}

void sim_params_config(const struct sim_params *p, struct r2_config *cfg)
{
    r2_config_defaults(cfg);
    option(cfg, "NCCL_IB_TIMEOUT", p->ib_timeout);
    option(cfg, "NCCL_IB_RETRY_CNT", p->ib_retry);
    option(cfg, "NCCL_R2_T_ACK", p->ack_us);
    option(cfg, "NCCL_R2_T_REPEAT", p->repeat_ms);
    option(cfg, "NCCL_R2_T_FENCE", p->t_fence_ms);
    option(cfg, "NCCL_R2_T_PCIE", p->t_pcie_ms);
    option(cfg, "NCCL_R2_T_PACKET", p->t_packet_ms);
    option(cfg, "NCCL_R2_T_DEAD", p->t_dead_ms);
    option(cfg, "NCCL_R2_GIVE_UP", p->give_up_ms);
    option(cfg, "NCCL_R2_CONNECT", p->give_up_ms);
    option(cfg, "NCCL_R2_LINGER", p->linger_ms);
    option(cfg, "NCCL_R2_CUT_MIN", p->stripe_min);
    option(cfg, "NCCL_R2_T_STUCK", p->t_stuck_ms);
    if (p->t_return_ms) {
        option(cfg, "NCCL_R2_T_RETURN", p->t_return_ms);
    }
    if (p->t_probe_ms) {
        option(cfg, "NCCL_R2_T_PROBE", p->t_probe_ms);
    }
    if (p->qps) {
        option(cfg, "NCCL_IB_QPS_PER_CONNECTION", p->qps);
    }
    option(cfg, "NCCL_IB_SPLIT_DATA_ON_QPS", p->split);
    option(cfg, "NCCL_R2_RQ_DEPTH", p->rq_depth);
    option(cfg, "NCCL_IB_ADAPTIVE_ROUTING", p->adaptive);
    option(cfg, "NCCL_IB_AR_THRESHOLD", p->ar_threshold);
    option(cfg, "NCCL_R2_SPREAD", p->spread);
    option(cfg, "NCCL_R2_BALANCE", !p->no_balance);
    option(cfg, "NCCL_R2_FAILOVER", !p->no_failover);
    option_text(cfg, "NCCL_R2_ACK", p->ack_flush ? "flush" : "e2e");
    option_text(cfg, "NCCL_R2_RELAY", p->copy_nics ? "host" : "off");
    option_text(cfg, "NCCL_R2_FLUSH", p->flush_always ? "always" : "auto");
    option_text(cfg, "NCCL_R2_BACKUP_SCOPE", p->crossrail && !p->own_rail ? "any" : "rail");
}

int sim_params_ports(const struct sim_params *p, int index, struct r2_config *cfg)
{
    int odd = p->ports_differ ? index : 0, first = 50000 + 7 * odd,
        n = 1 + (p->ports - 1 + 3 * odd) % 16, fd;
    char text[32], path[32];
    size_t len;

    if (p->ports == 0 || odd == 2) {
        return -1;
    }
    len = (size_t)snprintf(text, sizeof(text), "* * %d-%d\n", first, first + n - 1);
    fd = memfd_create("ports", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len) {
        perror("r2_sim: a file of ports");
        exit(2);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    option_text(cfg, "NCCL_R2_WAYS", path);
    return fd;
}
