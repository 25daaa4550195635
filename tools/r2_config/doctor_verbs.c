/* Which libibverbs this is: what its version says that it can do, and whether the providers beside
 * it are its own. */
#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_config/doctor_int.h"
#include "tools/r2_config/elf.h"

/* IBVERBS_1.N of the calls, IBVERBS_PRIVATE_N of the providers; -1. */
struct versions {
    int calls, providers;
};

static void versions_find(const struct elf_info *e, struct versions *v)
{
    v->calls = v->providers = -1;
    for (int i = 0; i < e->version_count; i++) {
        int n;

        if (sscanf(e->version[i], "IBVERBS_1.%d", &n) == 1 && n > v->calls) {
            v->calls = n;
        } else if (sscanf(e->version[i], "IBVERBS_PRIVATE_%d", &n) == 1) {
            v->providers = n;
        }
    }
}

/* Calls that the plugin does without, at a price. The release of rdma-core is the one that brought
 * the version. */
static void calls_check(const struct doctor *d)
{
    const struct {
        int there;
        const char *call, *todo, *price;
    } calls[] = {
        {d->verbs.reg_dmabuf_mr != NULL, "ibv_reg_dmabuf_mr (IBVERBS_1.12)",
         "rdma-core 34 or later, where GPU memory is to be reached without a peer memory module",
         "no GPU memory by DMA-BUF"},
        {d->verbs.reg_mr_iova2 != NULL, "ibv_reg_mr_iova2 (IBVERBS_1.8)", "rdma-core 28 or later",
         "no relaxed ordering of PCI writes"},
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (!calls[i].there) {
            doctor_say(DOCTOR_WARN, "libibverbs", calls[i].todo, "it has no %s: %s", calls[i].call,
                       calls[i].price);
        }
    }
}

/* A provider's file, libNAME-rdmavN.so: the length of libNAME and N; 0: no such file. */
static int provider_parse(const char *file, int *version)
{
    const char *tail = strstr(file, "-rdmav");
    int end = 0;

    if (strncmp(file, "lib", 3) != 0 || tail == NULL ||
        sscanf(tail, "-rdmav%d.so%n", version, &end) != 1 || end == 0 || tail[end] != '\0') {
        return 0;
    }
    return (int)(tail - file);
}

static int provider_exists(const char *dir, const char *file, int len, int version)
{
    char path[PATH_MAX + 300];

    snprintf(path, sizeof(path), "%s/%.*s-rdmav%d.so", dir, len, file, version);
    return access(path, F_OK) == 0;
}

/* Files that another rdma-core left, or brought, are passed over by this one without a word. */
static void providers_check(const struct doctor *d, const char *library, int want)
{
    char dir[PATH_MAX + 16], base[PATH_MAX], others[256] = "";
    int own = 0, foreign = 0, version;
    DIR *files;

    snprintf(base, sizeof(base), "%s", library);
    snprintf(dir, sizeof(dir), "%s/libibverbs", dirname(base));
    files = opendir(dir);
    for (struct dirent *e; files && (e = readdir(files)) != NULL;) {
        int len = provider_parse(e->d_name, &version);
        size_t used = strlen(others);

        own += len > 0 && version == want;
        if (len > 0 && version != want && !provider_exists(dir, e->d_name, len, want)) {
            foreign++;
            snprintf(others + used, sizeof(others) - used, "%s%.60s", used ? " " : "", e->d_name);
        }
    }
    if (files) {
        closedir(files);
    }
    if (foreign) {
        doctor_say(
            DOCTOR_WARN, "libibverbs",
            "libibverbs1 and ibverbs-providers of one rdma-core, and no second one in LD_LIBRARY_PATH",
            "it takes providers named rdmav%d, and %s has %s: NICs of these are not seen", want,
            dir, others);
    } else if (own == 0 && d->sysfs_devices > 0 && d->listed == 0) {
        doctor_say(DOCTOR_WARN, "libibverbs", "install ibverbs-providers, of the same rdma-core",
                   "no provider named rdmav%d is in %s", want, dir);
    }
}

void doctor_versions(const struct doctor *d, const char *path)
{
    char real[PATH_MAX], why[256];
    struct elf_info e;
    struct versions v;

    if (realpath(path, real) == NULL || elf_read(real, &e, why, sizeof(why)) != 0) {
        return; /* it has been loaded: what it is made of is all that is not known */
    }
    versions_find(&e, &v);
    if (v.calls < 0) {
        doctor_say(DOCTOR_WARN, "libibverbs", "use the libibverbs of rdma-core",
                   "%s has no versions IBVERBS_1.N: it is not rdma-core's", real);
        return;
    }
    calls_check(d);
    if (v.providers < 0) {
        doctor_say(DOCTOR_OK, "libibverbs", NULL, "calls of IBVERBS_1.%d", v.calls);
        return;
    }
    doctor_say(DOCTOR_OK, "libibverbs", NULL,
               "calls of IBVERBS_1.%d, providers of IBVERBS_PRIVATE_%d", v.calls, v.providers);
    providers_check(d, real, v.providers);
}
