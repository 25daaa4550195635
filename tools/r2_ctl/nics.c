/* Which NICs this host has, as far as a command may name them. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/ib_transport/verbs/ib_verbs.h"
#include "tools/r2_ctl/ctl.h"
#include "tools/shared/args.h"

/* The device of @name stands in @dir, which is its own, with the port that @name may say. */
static bool has_port(const char *dir, const char *name)
{
    const char *port = strchr(name, ':');
    char path[400];
    int n =
        snprintf(path, sizeof(path), "%s%s%s", dir, port ? "/ports/" : "", port ? port + 1 : "");

    return n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0;
}

/* By libibverbs, whose devices may be elsewhere than the kernel's; no device is opened. */
static bool verbs_have(const char *name)
{
    struct ibv_device **list;
    struct ib_verbs v;
    char why[256];
    bool found = false;
    size_t len = strcspn(name, ":");
    int n = 0;

    if (ib_verbs_load(&v, why, sizeof(why)) != 0 || (list = v.get_device_list(&n)) == NULL) {
        return false;
    }
    for (int i = 0; i < n && !found; i++) {
        const char *dev = v.get_device_name(list[i]);

        found = strlen(dev) == len && strncmp(dev, name, len) == 0 &&
                has_port(list[i]->ibdev_path, name);
    }
    v.free_device_list(list);
    return found;
}

bool ctl_nic_here(const char *name)
{
    char dir[300];

    snprintf(dir, sizeof(dir), "/sys/class/infiniband/%.*s", (int)strcspn(name, ":/"), name);
    return has_port(dir, name) || verbs_have(name);
}

/* --- the nearest --- */

#define NEAR_NAMES 256
struct near {
    char name[NEAR_NAMES][64];
    int n;
};

static void near_add(struct near *s, const char *name)
{
    if (s->n < NEAR_NAMES - 1 && name[0] != '.') {
        snprintf(s->name[s->n++], sizeof(s->name[0]), "%.63s", name);
    }
}

static void near_row(void *arg, const struct ctl_row *r)
{
    near_add(arg, r->nic.name);
}

/* Of the kernel, or where libibverbs' devices are elsewhere, of those. */
static void near_devices(struct near *s)
{
    DIR *d = opendir("/sys/class/infiniband");
    struct ibv_device **list;
    struct ib_verbs v;
    char why[256];
    int n = 0;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        near_add(s, e->d_name);
    }
    if (d != NULL) {
        closedir(d);
    }
    if (s->n == 0 && ib_verbs_load(&v, why, sizeof(why)) == 0 &&
        (list = v.get_device_list(&n)) != NULL) {
        for (int i = 0; i < n; i++) {
            near_add(s, v.get_device_name(list[i]));
        }
        v.free_device_list(list);
    }
}

const char *ctl_nic_near(const struct ctl *c, const char *name, char *out, size_t room)
{
    static struct near s;
    static const char *names[NEAR_NAMES];
    const char *near;

    s.n = 0;
    ctl_rows_walk(c, near_row, &s);
    near_devices(&s);
    for (int i = 0; i <= s.n; i++) {
        names[i] = i < s.n ? s.name[i] : NULL;
    }
    near = args_near(name, names);
    out[0] = '\0';
    if (near) {
        snprintf(out, room, ": did you mean %s?", near);
    }
    return out;
}

int ctl_names_known(const struct ctl *c, int n, char *const *names)
{
    int unknown = 0;
    char near[100];

    for (int i = 0; i < n; i++) {
        if (ctl_name_known(c, names[i])) {
            continue;
        }
        if (ctl_nic_here(names[i])) {
            fprintf(stderr, "r2_ctl: no running job here has a NIC %s: it applies to later ones\n",
                    names[i]);
        } else if (c->force) {
            fprintf(
                stderr,
                "r2_ctl: this host has no NIC %s that can be seen, and no running job has one\n",
                names[i]);
        } else {
            unknown += ctl_fail(
                "neither this host nor a running job has a NIC %s: nothing was done%s (--force: a NIC "
                "that cannot be seen from here, a container's own)",
                names[i], ctl_nic_near(c, names[i], near, sizeof(near)));
        }
    }
    return unknown != 0;
}
