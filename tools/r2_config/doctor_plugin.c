/* The options, the library that NCCL would load, and what it says. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ib_transport/ib_way_file.h"
#include "tools/r2_config/doctor_int.h"
#include "tools/r2_config/elf.h"
#include "tools/r2_config/probe.h"

#define OURS    "R2"
#define LIBRARY "libnccl-net-r2.so"

static struct probe found; /* our plugin, as soon as one has been found and asked */
static int have_plugin, limit_s;
static char beside[PATH_MAX]; /* our library near this program; "" */

void doctor_options(struct doctor *d)
{
    const struct values *v = d->values;
    char todo[160];
    int n, set = 0;

    r2_config_rows(&n);
    for (int i = 0; i < n; i++) {
        set += v->cfg.source[i] != R2_SRC_DEFAULT;
    }
    for (int i = 0; i < v->warns; i++) {
        if (strcmp(v->warn[i], v->cfg.error) != 0) {
            doctor_hint(v->warn[i], todo, sizeof(todo));
            doctor_say(DOCTOR_WARN, "options", todo, "%s", v->warn[i]);
        }
    }
    if (v->cfg.error[0]) {
        doctor_say(DOCTOR_FAIL, "options",
                   "correct or unset it: the job would end at its first connection", "%s",
                   v->cfg.error);
    } else {
        doctor_say(DOCTOR_OK, "options", NULL, "%d of %d are set here", set, n);
    }
    if (v->ways.rules) {
        doctor_say(DOCTOR_OK, "NCCL_R2_WAYS", NULL,
                   "%s: rules: %u, digest %08x, as it should be on every host", v->cfg.ways,
                   v->ways.rules, ib_ways_digest(&v->ways));
    }
    if (v->cfg.ib_disable) {
        doctor_say(DOCTOR_FAIL, "NCCL_IB_DISABLE", "unset it",
                   "is set: the plugin shows no devices");
    }
    if (!v->cfg.failover) {
        doctor_say(DOCTOR_WARN, "NCCL_R2_FAILOVER", "unset it, unless this is meant",
                   "is off: the first failure ends a connection");
    }
}

/* --- which library --- */

static void beside_find(void)
{
    static const char *const places[] = {"", "../lib/", "../lib64/"};
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) {
        return;
    }
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && beside[0] == '\0'; i++) {
        snprintf(path, sizeof(path), "%s%s%s", self, places[i], LIBRARY);
        if (realpath(path, beside) == NULL) {
            beside[0] = '\0';
        }
    }
}

/* Keeps the first that is ours. */
static int probe_name(struct probe *p, const char *name)
{
    doctor_limit_start(limit_s); /* each has its own time */
    if (probe_run(p, name, OURS, limit_s * 1000 / 2) != 0) {
        doctor_say(DOCTOR_FAIL, "plugin", "free memory or processes", "no child process: %s",
                   strerror(errno));
        return -1;
    }
    if (!have_plugin && strcasecmp(p->name, OURS) == 0) {
        found = *p;
        have_plugin = 1;
        return 1;
    }
    return strcasecmp(p->name, OURS) == 0;
}

/* A child that could not even load the library, or a library without a table. */
static void not_loaded_say(const char *what, const struct probe *p)
{
    char todo[PATH_MAX + 128];

    if (beside[0]) {
        snprintf(todo, sizeof(todo), "NCCL_NET_PLUGIN=%s, or its folder in LD_LIBRARY_PATH",
                 beside);
    } else {
        snprintf(
            todo, sizeof(todo),
            "install it, and name its folder in LD_LIBRARY_PATH or its path in NCCL_NET_PLUGIN");
    }
    if (p->path[0]) {
        doctor_say(DOCTOR_FAIL, what, todo, "%s has no table ncclNetPlugin_vN: no net plugin",
                   p->path);
    } else if (p->end[0]) {
        doctor_say(DOCTOR_FAIL, what, todo, "loading it does not work: %s", p->end);
    } else {
        doctor_say(DOCTOR_FAIL, what, todo, "%s%s%s", p->tried[0], p->tried[1][0] ? "; " : "",
                   p->tried[1]);
    }
}

/* One name of the list. 1: ours. */
static int name_check(const char *name)
{
    char what[300];
    struct probe p;
    int ours;

    snprintf(what, sizeof(what), "NCCL_NET_PLUGIN=%.200s", name);
    if (strcasecmp(name, "none") == 0) {
        doctor_say(DOCTOR_FAIL, what, "NCCL_NET_PLUGIN=r2", "NCCL loads no plugin at all");
        return 0;
    }
    ours = probe_name(&p, name);
    if (ours > 0) {
        doctor_say(DOCTOR_OK, what, NULL, "is %s", p.path);
        return 1; /* its lines live on in found, or were taken from it */
    }
    if (ours == 0 && p.name[0]) {
        doctor_say(DOCTOR_WARN, what, "name r2 first, if it is to be used",
                   "is another plugin, '%s' (%s): NCCL takes the first that finds devices", p.name,
                   p.path);
    } else if (ours == 0 && p.tables[0]) {
        doctor_say(DOCTOR_WARN, what, "name r2 first, if it is to be used",
                   "is another plugin (%s, tables %s)", p.path, p.tables);
    } else if (ours == 0) {
        not_loaded_say(what, &p);
    }
    probe_free(&p);
    return 0;
}

/* NCCL_NET_PLUGIN is not set: NCCL looks for libnccl-net.so, and r2 has to be asked for. */
static void unset_check(void)
{
    struct probe p;
    int ours = probe_name(&p, "libnccl-net.so");

    if (ours > 0) {
        doctor_say(DOCTOR_OK, "NCCL_NET_PLUGIN", NULL, "is not set; libnccl-net.so is ours: %s",
                   p.path);
        return;
    }
    doctor_say(DOCTOR_WARN, "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN=r2 in the job's environment",
               "is not set: NCCL loads libnccl-net.so, which here is %s%s",
               p.path[0] ? "another plugin, " : "not there", p.path);
    probe_free(&p);
    name_check("r2");
}

static void net_check(void)
{
    const char *net = getenv("NCCL_NET");

    if (net == NULL || *net == '\0') {
        doctor_say(DOCTOR_WARN, "NCCL_NET", "NCCL_NET=R2",
                   "is not set: where the plugin does not load, NCCL goes on without it, silently");
    } else if (strcasecmp(net, OURS) != 0) {
        doctor_say(DOCTOR_FAIL, "NCCL_NET", "NCCL_NET=R2",
                   "is %s: NCCL passes over every plugin of another name", net);
    } else {
        doctor_say(DOCTOR_OK, "NCCL_NET", NULL, "is %s: a plugin that does not load is an error",
                   net);
    }
}

/* NCCL 2.28 and 2.29 forget a plugin with its last communicator; a count that begins at 1 never
 * comes to 0. */
static void count_check(void)
{
    const char *count = getenv("NCCL_NET_PLUGIN_REF_COUNT");

    if (count == NULL || strtoll(count, NULL, 0) <= 0) {
        doctor_say(
            DOCTOR_WARN, "NCCL_NET_PLUGIN_REF_COUNT", "NCCL_NET_PLUGIN_REF_COUNT=1",
            "is %s: NCCL 2.28 and 2.29 forget the plugin with a process's last communicator; the next one fails "
            "(Failed to initialize any NET plugin), or goes over NCCL's own transport where NCCL_NET is not set",
            count && *count ? count : "not set");
    } else {
        doctor_say(DOCTOR_OK, "NCCL_NET_PLUGIN_REF_COUNT", NULL,
                   "is %s: a communicator can be made after the last one has ended", count);
    }
}

/* libdl and libpthread come with glibc, and are parts of libc.so.6 since 2.34. */
static bool is_libc(const char *needed)
{
    static const char *const names[] = {"libc.so.", "libdl.so.", "libpthread.so.", "ld-linux"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(needed, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void library_check(const char *path)
{
    struct elf_info e;
    char why[256], others[512] = "";

    if (elf_read(path, &e, why, sizeof(why)) != 0) {
        doctor_say(DOCTOR_FAIL, "library", "install it again", "%s: %s", path, why);
        return;
    }
    for (int i = 0; i < e.needed_count; i++) {
        size_t used = strlen(others);

        if (!is_libc(e.needed[i])) {
            snprintf(others + used, sizeof(others) - used, "%s%s", used ? " " : "", e.needed[i]);
        }
    }
    if (strcmp(e.soname, LIBRARY) != 0) {
        doctor_say(DOCTOR_WARN, "library", "install it with make install",
                   "%s: its SONAME is '%s', not %s: ldconfig makes links of that name", path,
                   e.soname, LIBRARY);
    }
    if (others[0]) {
        doctor_say(DOCTOR_WARN, "library", "use a build that needs libc alone",
                   "%s needs %s: a job without them cannot load it", path, others);
    }
    if (!e.nodelete) {
        doctor_say(DOCTOR_WARN, "library", "link it with -z nodelete",
                   "%s may be unloaded while its threads run: NCCL closes plugins", path);
    }
    if (strcmp(e.soname, LIBRARY) == 0 && !others[0] && e.nodelete) {
        doctor_say(DOCTOR_OK, "library", NULL, "%s, SONAME %s, needs libc alone",
                   e.ident[0] ? e.ident : path, e.soname);
    }
}

void doctor_selection(struct doctor *d)
{
    const char *names = getenv("NCCL_NET_PLUGIN");
    char list[1024], *save = NULL;
    struct probe p;

    limit_s = d->limit_s;
    beside_find();
    if (names == NULL || *names == '\0') {
        unset_check();
    } else {
        snprintf(list, sizeof(list), "%s", names);
        for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
            if (name_check(name)) {
                break;
            }
        }
    }
    net_check();
    count_check();
    if (!have_plugin && beside[0] && probe_name(&p, beside) != 1) {
        not_loaded_say("library", &p);
        probe_free(&p);
    }
    if (have_plugin) {
        library_check(found.path);
    }
}

/* --- what it says: told last, when its reasons have been told --- */

/* Without its kind and the plugin's prefix. */
static const char *line_text(const char *line)
{
    static const char prefix[] = "NET/R2 : ";
    const char *text = line + strlen("WARN ");

    return strncmp(text, prefix, sizeof(prefix) - 1) == 0 ? text + sizeof(prefix) - 1 : text;
}

static const char *last_line(const char *kind)
{
    const char *last = NULL;

    for (int i = 0; i < found.lines; i++) {
        if (strncmp(found.line[i], kind, strlen(kind)) == 0) {
            last = line_text(found.line[i]);
        }
    }
    return last;
}

/* Of the call that was refused. */
static const char *last_reason(void)
{
    const char *reason = last_line("WARN");

    reason = reason ? reason : last_line("INFO");
    return reason ? reason : "without a reason";
}

/* What a job would read at NCCL_DEBUG=WARN before it begins, and no check has said yet. */
static void warnings_say(void)
{
    char todo[160];

    for (int i = 0; i < found.lines; i++) {
        const char *text = line_text(found.line[i]);

        if (strncmp(found.line[i], "WARN ", 5) == 0 && !doctor_said(text)) {
            doctor_hint(text, todo, sizeof(todo));
            doctor_say(DOCTOR_WARN, "plugin", todo, "it warns: %s", text);
        }
    }
}

void doctor_plugin(struct doctor *d)
{
    const char *todo =
        doctor_count(DOCTOR_FAIL) ? "see above" : "NCCL_DEBUG=INFO in a job shows more";
    char names[512] = "";

    if (!have_plugin) {
        doctor_say(DOCTOR_FAIL, "plugin", todo, "there is none to run");
        return;
    }
    if (found.end[0]) {
        doctor_say(DOCTOR_FAIL, "plugin", "report it, with the output of NCCL_DEBUG=INFO",
                   "run on its own: %s", found.end);
    } else if (found.init_rc != 0 || found.devices_rc != 0) {
        doctor_say(DOCTOR_FAIL, "plugin", todo, "its init returned %d: %s", found.init_rc,
                   last_reason());
    } else {
        warnings_say();
        for (int i = 0; i < found.devices; i++) {
            size_t used = strlen(names);

            snprintf(names + used, sizeof(names) - used, "%s%s", i ? " " : "", found.device[i]);
        }
        doctor_say(found.ndev > 0 ? DOCTOR_OK : DOCTOR_FAIL, "plugin", found.ndev > 0 ? NULL : todo,
                   "its init took %.0f ms and shows %d devices: %s", found.init_ms, found.ndev,
                   names);
        if (found.listened && found.listen_rc != 0) {
            doctor_say(DOCTOR_FAIL, "plugin", "correct it: NCCL ends a job for it",
                       "its listen, which begins a connection, returned %d: %s", found.listen_rc,
                       last_reason());
        }
    }
    probe_free(&found);
}
