/* softfab up and down. */
#include "tests/fabric/cli/softfab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct up_args {
    const char *name, *desc_file;
    int hosts, nics, spines;
    enum fab_hash hash;
    uint64_t rate, latency_ns;
    bool crossrail, reorder, gpu, shape_given;
};

/* What was wrong with option @opt. */
static int up_option_set(struct up_args *a, int opt)
{
    int limit;

    switch (opt) {
    case 'N':
        a->name = optarg;
        return 0;
    case 'd':
        a->desc_file = optarg;
        return 0;
    case 'g':
        a->gpu = true;
        return 0;
    case 'o':
        a->reorder = true;
        return 0;
    case 'x':
        a->crossrail = a->shape_given = true;
        return 0;
    case 'H':
    case 'n':
        a->shape_given = true;
        limit = opt == 'H' ? FAB_MAX_HOSTS : FAB_MAX_NICS;
        *(opt == 'H' ? &a->hosts : &a->nics) = softfab_number(optarg, limit);
        return (opt == 'H' ? a->hosts : a->nics) > 0
                   ? 0
                   : softfab_misuse("up: --%s '%s' is not a number from 1 to %d",
                                    opt == 'H' ? "hosts" : "nics", optarg, limit);
    case 's':
        a->spines = softfab_number(optarg, FAB_MAX_SPINES);
        return a->spines > 0 ? 0
                             : softfab_misuse("up: --spines '%s' is not a number from 1 to %d",
                                              optarg, FAB_MAX_SPINES);
    case 'h':
        return fab_parse_hash(optarg, &a->hash) == 0
                   ? 0
                   : softfab_misuse("up: --hash '%s' is neither ports nor qp", optarg);
    case 'r':
        a->shape_given = true;
        return fab_parse_rate(optarg, &a->rate) == 0
                   ? 0
                   : softfab_misuse("up: --rate '%s' is not a rate such as 100MB/s or unlimited",
                                    optarg);
    case 'l':
        a->shape_given = true;
        return fab_parse_time(optarg, &a->latency_ns) == 0
                   ? 0
                   : softfab_misuse("up: --latency '%s' is not a time such as 10us", optarg);
    default:
        return -1;
    }
}

static int up_parse(int argc, char **argv, struct up_args *a)
{
    static const struct option opts[] = {
        {"name", 1, NULL, 'N'},      {"hosts", 1, NULL, 'H'},   {"nics", 1, NULL, 'n'},
        {"rate", 1, NULL, 'r'},      {"latency", 1, NULL, 'l'}, {"desc", 1, NULL, 'd'},
        {"crossrail", 0, NULL, 'x'}, {"gpu", 0, NULL, 'g'},     {"reorder", 0, NULL, 'o'},
        {"spines", 1, NULL, 's'},    {"hash", 1, NULL, 'h'},    {0},
    };
    int opt;

    while ((opt = getopt_long(argc, argv, ":", opts, NULL)) != -1) {
        int rc = up_option_set(a, opt);
        if (rc < 0) {
            return softfab_refuse("up", opt, argv, opts);
        }
        if (rc != 0) {
            return rc;
        }
    }
    if (optind < argc) {
        return softfab_misuse("up: unexpected '%s'", argv[optind]);
    }
    if (a->desc_file != NULL && a->shape_given) {
        return softfab_misuse(
            "up: --desc says it all; --hosts, --nics, --rate, --latency and --crossrail go without it");
    }
    return 0;
}

static int desc_read(struct fab_desc *d, const char *file)
{
    char text[65536], why[512];
    FILE *f = fopen(file, "re");

    if (f == NULL) {
        return softfab_fail("cannot read %s: %s", file, strerror(errno));
    }
    size_t n = fread(text, 1, sizeof(text), f);
    bool whole = feof(f) && !ferror(f);
    fclose(f);
    if (!whole || n == sizeof(text)) {
        return softfab_fail("%s is longer than %zu bytes or cannot be read", file,
                            sizeof(text) - 1);
    }
    text[n] = '\0';
    if (fab_desc_parse(d, text, why, sizeof(why)) != 0) {
        return softfab_fail("%s: %s", file, why);
    }
    return 0;
}

/* The whole tree is made under another name and then gets its own in one step. */
static int fabric_create(const char *path, const char *name, const struct fab_desc *d, bool gpu)
{
    char tmp[SEG_PATH_MAX], why[512];

    snprintf(tmp, sizeof(tmp), "%.140s.new.%d", path, (int)getpid());
    seg_dir_remove(tmp);
    if (mkdir(tmp, 0700) != 0) {
        return softfab_fail("cannot create %s: %s", tmp, strerror(errno));
    }
    if (seg_file_create(tmp, name, d, why, sizeof(why)) != 0 ||
        seg_sysfs_write(tmp, d, gpu, why, sizeof(why)) != 0 ||
        seg_dir_install(tmp, path, why, sizeof(why)) != 0) {
        seg_dir_remove(tmp);
        return softfab_fail("%s", why);
    }
    return 0;
}

int softfab_up(int argc, char **argv)
{
    static struct fab_desc d;
    struct up_args a = {.hosts = 2, .nics = 4};
    char path[SEG_PATH_MAX], why[512];
    int rc = up_parse(argc, argv, &a);

    if (rc != 0) {
        return rc;
    }
    if (a.desc_file != NULL) {
        rc = desc_read(&d, a.desc_file);
    } else if (fab_desc_init(&d, a.hosts, a.nics, a.rate, a.latency_ns, why, sizeof(why)) != 0) {
        rc = softfab_misuse("up: %s", why);
    }
    if (rc != 0) {
        return rc;
    }
    d.crossrail |= a.crossrail;
    d.reorder |= a.reorder;
    d.spines = a.spines > 0 ? a.spines : d.spines;
    d.hash = a.hash != FAB_HASH_PORTS ? a.hash : d.hash;
    if (seg_dir_path(a.name, path, sizeof(path), why, sizeof(why)) != 0) {
        return softfab_fail("%s", why);
    }
    rc = fabric_create(path, a.name == NULL ? "default" : a.name, &d, a.gpu);
    if (rc == 0) {
        printf("fabric %s is up: %d hosts with %d NICs, at %s\n",
               a.name == NULL ? "default" : a.name, d.hosts, d.nics, path);
    }
    return rc;
}

int softfab_down(int argc, char **argv)
{
    static const struct option opts[] = {{"name", 1, NULL, 'N'}, {0}};
    char path[SEG_PATH_MAX], old[SEG_PATH_MAX], why[512];
    const char *name = NULL;
    struct seg_map m;
    int opt, living = 0;
    pid_t pid;

    while ((opt = getopt_long(argc, argv, ":", opts, NULL)) != -1) {
        if (opt != 'N') {
            return softfab_refuse("down", opt, argv, opts);
        }
        name = optarg;
    }
    if (optind < argc) {
        return softfab_misuse("down: unexpected '%s'", argv[optind]);
    }
    if (seg_dir_path(name, path, sizeof(path), why, sizeof(why)) != 0) {
        return softfab_fail("%s", why);
    }
    /* A tree of another version can be removed as well, so that an upgrade does not leave it for
     * ever. */
    if (seg_file_open(&m, path, why, sizeof(why)) == 0) {
        atomic_store_explicit(&m.seg->head.closed, 1, memory_order_release);
        for (int i = 0; i < SEG_SLOTS; i++) {
            living += seg_slot_alive(&m, i, &pid);
        }
        seg_file_close(&m);
    } else if (access(path, F_OK) != 0) {
        return softfab_fail("%s", why);
    }
    snprintf(old, sizeof(old), "%.140s.old.%d", path, (int)getpid());
    if (rename(path, old) != 0 || seg_dir_remove(old) != 0) {
        return softfab_fail("cannot remove %s: %s", path, strerror(errno));
    }
    if (living > 0) {
        printf(
            "fabric is down; %d process%s still attached keep%s it among themselves until they end\n",
            living, living == 1 ? "" : "es", living == 1 ? "s" : "");
    } else {
        printf("fabric is down\n");
    }
    return 0;
}
