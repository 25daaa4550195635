#include <string.h>

#include "plugin/planner/planner_level.h"
#include "tools/r2_plan/tool.h"

/* "0-2 7 3": runs of nodes that follow each other as a range; hosts by their names. */
static void order_write(FILE *f, const struct job *j, const int *order)
{
    int n = j->nodes;

    for (int i = 0; j->hosts && i < n; i++) {
        fprintf(f, " %s", j->hosts->host[order[i]]->name);
    }
    n = j->hosts ? 0 : n;
    for (int i = 0; i < n;) {
        int last = i;

        while (last + 1 < n && order[last + 1] == order[last] + 1) {
            last++;
        }
        if (last > i + 1) {
            fprintf(f, " %d-%d", order[i], order[last]);
        } else {
            last = i;
            fprintf(f, " %d", order[i]);
        }
        i = last + 1;
    }
    fputc('\n', f);
}

static void size_write(FILE *f, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int u = 0;

    for (; value >= 1024 && u < 4; u++) {
        value /= 1024;
    }
    fprintf(f, "%.4g %s", value, unit[u]);
}

/* Of a host, NICs that cannot be used. */
static void lost_write(FILE *f, const struct job *j, const struct host *host)
{
    const char *before = "  ";

    for (int i = 0; i < host->nics; i++) {
        const struct host_nic *n = &host->nic[i];

        if (!host_nic_is_usable(n)) {
            fprintf(f, "%s%s %s%s%s", before, n->name, host_nic_word(n), n->why[0] ? ": " : "",
                    n->why);
            before = "; ";
        }
    }
    if (host->nics < j->nics) {
        fprintf(f, "%sit has %d, others %d", before, host->nics, j->nics);
    }
}

static void hosts_write(FILE *f, const struct job *j)
{
    const struct hosts *h = j->hosts;
    int width = 4;

    for (int i = 0; i < h->hosts; i++) {
        int n = (int)strlen(h->host[i]->name);

        width = n > width ? n : width;
    }
    if (h->job.id[0]) {
        fprintf(f, "job %s: ", h->job.id);
    }
    fprintf(f, "%d hosts with %d NICs of %g Gb/s%s and %d GPUs, all_reduce of ", j->nodes, j->nics,
            j->gbps, j->rate_by == RATE_ASSUMED ? " (assumed)" : "", j->gpus);
    size_write(f, j->bytes);
    fprintf(f, "\n\n%-*s  usable\n", width, "host");
    for (int i = 0; i < h->hosts; i++) {
        fprintf(f, "%-*s  %2d of %2d", width, h->host[i]->name, host_usable(h->host[i]), j->nics);
        lost_write(f, j, h->host[i]);
        fputc('\n', f);
    }
    fputc('\n', f);
}

static void job_write(FILE *f, const struct job *j)
{
    int degraded = 0;

    if (j->hosts) {
        hosts_write(f, j);
        return;
    }

    fprintf(f, "%d nodes with %d NICs of %g Gb/s and %d GPUs, all_reduce of ", j->nodes, j->nics,
            j->gbps, j->gpus);
    size_write(f, j->bytes);
    for (int i = 0; i < j->nodes; i++) {
        int lost = j->nics - __builtin_popcount(j->rails[i]);

        if (lost > 0) {
            fprintf(f, "%s node %d: %d", degraded++ ? "," : "; lost:", i, lost);
        }
    }
    fputs(degraded ? "\n\n" : "; nothing lost\n\n", f);
}

static void row_write(FILE *f, const char *name, const struct planner_row *r, double healthy,
                      const char *who)
{
    if (r->load > 0) {
        fprintf(f, "%-22s %8.3f %11.3f %9.1f %%%s%s\n", name, r->load, r->us / 1000,
                100 * healthy / r->us, *who ? "  " : "", who);
    } else {
        fprintf(f, "%-22s %8s %11s %11s  more than %d different shares\n", name, "-", "-", "-",
                PLANNER_LEVELS);
    }
}

static void rows_write(FILE *f, const struct planner_plan *p)
{
    double healthy = healthy_us(p);

    fprintf(f, "%-22s %8s %11s %11s\n", "strategy", "load", "time/ms", "of healthy");
    row_write(f, "ring, nothing lost", &p->healthy[PLANNER_RING], healthy, "");
    row_write(f, "tree, nothing lost", &p->healthy[PLANNER_TREE], healthy, "");
    for (int s = 0; s < PLANNER_STRATEGIES; s++) {
        bool is_use = s == (int)p->use, is_fastest = s == (int)p->fastest;

        row_write(f, planner_choose_name(s), &p->row[s], healthy,
                  is_use               ? "NCCL: use this"
                  : is_fastest         ? "a network that reduces; the fastest"
                  : p->row[s].is_nccls ? "NCCL"
                                       : "a network that reduces");
    }
    fprintf(f, "%-22s %8.3f\n", "no schedule below", p->bound);
    fputs(
        "Load: the longest time of a node's NICs in D/B: data over what a healthy node carries.\n",
        f);
    if (p->paper_share > 0) {
        fprintf(f,
                "R2CCL's paper: Y* = %.4f, serial time as printed %.3f ms (below what is possible "
                "where more than 2/3 are lost).\n",
                p->paper_share, p->paper_us / 1000);
    }
}

static void use_write(FILE *f, const struct job *j, const struct answer *a)
{
    switch (a->plan.use) {
    case PLANNER_RING:
        fputs("\nUse: NCCL_ALGO=Ring, ranks in any order.\n", f);
        break;
    case PLANNER_TREE:
        fputs("\nUse: NCCL_ALGO=Tree, ranks as they are.\n", f);
        break;
    default:
        fputs(j->hosts ? "\nUse: NCCL_ALGO=Tree, ranks of the hosts in this order:\n "
                       : "\nUse: NCCL_ALGO=Tree, ranks of the nodes in this order:\n ",
              f);
        order_write(f, j, a->seat);
    }
}

static void rails_write(FILE *f, const struct job *j, const struct answer *a)
{
    fprintf(f,
            "\nRing on a fabric that joins only equal rails (the table assumes that all reach "
            "each other), NICs on its narrowest edge:\n"
            "  present order %d, by R2CCL's Algorithm 1 %d, best order %d%s, no ring above %d\n",
            a->present, a->printed, a->ring.width, a->ring.is_best ? "" : " (best that was found)",
            a->ring.limit);
    if (a->ring.width > a->present) {
        fputs("  ", f);
        order_write(f, j, a->order);
    }
}

static void loss_write(FILE *f, const struct job *j, const char *where, enum loss_where w, int k)
{
    struct loss l;

    if (loss_find(j, w, k, &l)) {
        fprintf(f, "%4d  %-24s %12.2f %% %10.2f %% %10.2f %%\n", k, where, 100 * l.ring,
                100 * l.nccl, 100 * l.best);
    }
}

static void what_if_write(FILE *f, const struct job *j)
{
    char random[40];

    snprintf(random, sizeof(random), "anywhere, mean of %d", j->patterns);
    fprintf(f,
            "\nWhat losing NICs would cost, in time of an all_reduce:\n%4s  %-24s %14s %12s %12s\n",
            "NICs", "", "ring", "NCCL at best", "possible");
    for (int k = 1; k <= j->what_if; k++) {
        loss_write(f, j, "of one node", LOSS_ONE, k);
        loss_write(f, j, "of a node each", LOSS_EACH, k);
        loss_write(f, j, random, LOSS_RANDOM, k);
    }
}

void text_write(FILE *f, const struct job *j, const struct answer *a)
{
    job_write(f, j);
    rows_write(f, &a->plan);
    use_write(f, j, a);
    if (j->rail_only) {
        rails_write(f, j, a);
    }
    if (j->what_if > 0) {
        what_if_write(f, j);
    }
}
