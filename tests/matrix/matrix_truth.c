/* What is broken, what is right to say of it, and who can know. Pure. */
#include "tests/matrix/matrix.h"

#include <string.h>

#include "tests/fabric/model/fab_rng.h"

static const char *const blames[MX_BLAMES] = {"nothing", "NIC", "link",   "path",
                                              "process", "way", "unknown"};

static const struct {
    const char *name;
    enum mx_blame blame;
    const char *fault[2]; /* of the fabric, at a NIC; of a path and a plane: mx_case_fault */
    int ends_job;
    int needs_third; /* told from its neighbours only by a port on a third host, or one of another
                        rail where rails reach each other */
} kinds[MX_KINDS] = {
    [MX_HANG] = {"NIC hangs", MX_NIC, {"hang"}, 0, 0},
    [MX_FATAL] = {"NIC fatal", MX_NIC, {"fatal"}, 1, 0},
    [MX_REMOVE] = {"NIC removed", MX_NIC, {"remove"}, 1, 0},
    [MX_SILENT_DEATH] = {"NIC dies silently", MX_NIC, {"silent-death", "remove"}, 1, 0},
    [MX_DOWN] = {"port down", MX_LINK, {"down"}, 0, 0},
    [MX_BLACKHOLE] = {"cable silent", MX_LINK, {"blackhole"}, 0, 1},
    [MX_BLACKHOLE_TX] = {"cable silent, tx", MX_LINK, {"blackhole-tx"}, 0, 1},
    [MX_BLACKHOLE_RX] = {"cable silent, rx", MX_LINK, {"blackhole-rx"}, 0, 1},
    [MX_PLANE_CUT] = {"switch plane", MX_PATH, {"cut"}, 0, 1},
    [MX_PATH_CUT] = {"path between", MX_PATH, {"cut"}, 0, 1},
    [MX_KILLED] = {"process killed", MX_PROCESS, {NULL}, 1, 0},
    [MX_STOPPED] =
        {"process stopped",
         MX_PROCESS,
         {NULL},
         0,
         1}, /* the software fabric's NICs stand still with it: as if all between were cut */
    [MX_SLOW] = {"congestion", MX_NOTHING, {"rate 3MB/s"}, 0, 0},
    [MX_LOSS] = {"loss 1 %", MX_NOTHING, {"loss 1%"}, 0, 0},
    [MX_CALM] = {"nothing", MX_NOTHING, {NULL}, 0, 0},
    [MX_SPINE] = {"spine silent", MX_WAY, {"blackhole"}, 0, 0},
};

const char *mx_blame_name(enum mx_blame b)
{
    return (unsigned)b < MX_BLAMES ? blames[b] : "?";
}

const char *mx_kind_name(enum mx_kind k)
{
    return (unsigned)k < MX_KINDS ? kinds[k].name : "?";
}

void mx_case_draw(struct mx_case *c, uint64_t seed, int hosts, int nics, int spines)
{
    struct fab_rng r = {seed * 0x9e3779b97f4a7c15ull + 0x6d78};

    fab_rng_next(&r);
    *c = (struct mx_case){
        .kind = (enum mx_kind)(seed % MX_KINDS), .hosts = hosts, .nics = nics, .far = -1};
    c->host = (int)(fab_rng_next(&r) % (unsigned)hosts);
    c->nic = (int)(fab_rng_next(&r) % (unsigned)nics);
    if (c->kind == MX_PATH_CUT) {
        c->far = (c->host + 1 + (int)(fab_rng_next(&r) % (unsigned)(hosts - 1))) % hosts;
    } else if (c->kind == MX_SPINE && spines > 1) {
        c->spine = (int)(fab_rng_next(&r) % (unsigned)spines);
    } else if (c->kind == MX_SPINE) {
        c->kind = MX_CALM;
    }
}

enum mx_blame mx_case_blame(const struct mx_case *c)
{
    return kinds[c->kind].blame;
}

void mx_case_name(const struct mx_case *c, char *out, size_t len)
{
    int n = snprintf(out, len, "%s", kinds[c->kind].name);

    switch (c->kind) {
    case MX_CALM:
        break;
    case MX_KILLED:
    case MX_STOPPED:
        snprintf(out + n, len - (size_t)n, " h%d", c->host);
        break;
    case MX_PLANE_CUT:
        snprintf(out + n, len - (size_t)n, " n%d", c->nic);
        break;
    case MX_SPINE:
        snprintf(out + n, len - (size_t)n, " rail %d spine %d", c->nic, c->spine);
        break;
    case MX_PATH_CUT:
        snprintf(out + n, len - (size_t)n, " h%d:n%d h%d:n%d", c->host, c->nic, c->far, c->nic);
        break;
    default:
        snprintf(out + n, len - (size_t)n, " h%d:n%d", c->host, c->nic);
        break;
    }
}

const char *mx_case_fault(const struct mx_case *c, int i, char out[48])
{
    const char *what = i < 2 ? kinds[c->kind].fault[i] : NULL;

    if (what == NULL) {
        return NULL;
    }
    if (c->kind == MX_PLANE_CUT && c->crossrail) { /* the rail's switch is all rails' way to it */
        snprintf(out, 48, "*:n%d cut *:*", c->nic);
    } else if (c->kind == MX_PLANE_CUT) {
        snprintf(out, 48, "*:n%d cut *:n%d", c->nic, c->nic);
    } else if (c->kind == MX_PATH_CUT) {
        snprintf(out, 48, "h%d:n%d cut h%d:n%d", c->host, c->nic, c->far, c->nic);
    } else if (c->kind == MX_SPINE) {
        snprintf(out, 48, "rail %d spine %d %s", c->nic, c->spine, what);
    } else {
        snprintf(out, 48, "h%d:n%d %s", c->host, c->nic, what);
    }
    return out;
}

int mx_case_ends_job(const struct mx_case *c)
{
    return kinds[c->kind].ends_job;
}

int mx_case_can_tell(const struct mx_case *c)
{
    if (c->kind == MX_STOPPED && c->nics < 2) {
        return 0; /* its only NIC, and the channel may ride on it */
    }
    if (c->kind == MX_SPINE) {
        return c->met;
    }
    return c->hosts > 2 || !kinds[c->kind].needs_third ||
           (c->crossrail && c->nics > 1 && c->kind != MX_STOPPED);
}

/*
 * A verdict about a path names one end of it, or both, and whether it is these two NICs' alone or
 * the plane's: other switches are looked at for that. Between two hosts both are the same.
 */
static int is_path(const struct mx_case *c, const struct mx_verdict *v)
{
    int ends = v->far_host >= 0;

    if (v->nic != c->nic || (v->far_nic >= 0 && v->far_nic != c->nic)) {
        return 0;
    }
    if (c->hosts > 2 && v->plane != (c->kind == MX_PLANE_CUT)) {
        return 0;
    }
    if (c->kind == MX_PLANE_CUT) {
        return 1;
    }
    return (v->host == c->host && (!ends || v->far_host == c->far)) ||
           (v->host == c->far && (!ends || v->far_host == c->host));
}

enum mx_judgement mx_judge(const struct mx_case *c, const struct mx_verdict *v)
{
    enum mx_blame due = kinds[c->kind].blame;

    if (v->blame == MX_UNKNOWN) {
        return MX_CANNOT_TELL;
    }
    if (c->kind == MX_PLANE_CUT && c->crossrail &&
        v->blame == MX_LINK) { /* of a pair across rails it cuts off one end: its link, by
                                  definition (probe_verdict.h) */
        return v->nic == c->nic ? MX_RIGHT : MX_WRONG;
    }
    if (v->blame != due) {
        return MX_WRONG;
    }
    switch (due) {
    case MX_NIC:
    case MX_LINK:
        return v->host == c->host && v->nic == c->nic ? MX_RIGHT : MX_WRONG;
    case MX_PATH:
        return is_path(c, v) ? MX_RIGHT : MX_WRONG;
    case MX_PROCESS:
        return v->host == c->host ? MX_RIGHT : MX_WRONG;
    case MX_WAY: /* between whichever hosts: all of them use it. Across rails it is the lower's */
        return v->nic == c->nic || (c->crossrail && v->far_nic == c->nic) ? MX_RIGHT : MX_WRONG;
    default:
        return MX_RIGHT;
    }
}
