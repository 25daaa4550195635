/* Which NICs this host has, as far as a command may name them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/ib_transport/verbs/ib_verbs.h"
#include "tools/r2_ctl/ctl.h"

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

int ctl_names_known(const struct ctl *c, int n, char *const *names)
{
    int unknown = 0;

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
                "neither this host nor a running job has a NIC %s: nothing was done (--force: a NIC "
                "that cannot be seen from here, a container's own)",
                names[i]);
        }
    }
    return unknown != 0;
}
