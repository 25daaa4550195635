/*
 * The library as a stranger's process meets it: loaded alone, with nothing to work on. Which file:
 * R2_PLUGIN, else the one beside this program's folder ($(B)/tests/abi -> $(B)/libnccl-net-r2.so).
 *
 * Cases about libibverbs run this program again with an LD_LIBRARY_PATH whose first libibverbs.so.1
 * is none.
 */
#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/r2_perf/abi_view.h"

static char plugin[PATH_MAX];
static char self[PATH_MAX];
static char logged[1 << 16];
static char first_line[1024];
static char last_warn[1024];
static int log_faults; /* lines that break a rule of NCCL's log; checked by those who made the
                          plugin speak */

static __attribute__((format(printf, 5, 6))) void
logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    size_t used = strlen(logged);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (first_line[0] == '\0') {
        snprintf(first_line, sizeof(first_line), "%s", text);
    }
    if (level == ABI_LOG_WARN) {
        log_faults += flags != ~0ul; /* a mask of subsystems would hide it */
        snprintf(last_warn, sizeof(last_warn), "%s", text);
    }
    log_faults += strchr(text, '\n') != NULL || strncmp(text, "NET/R2 : ", 9) != 0;
    snprintf(logged + used, sizeof(logged) - used, "%s\n", text);
}

static void *plugin_open(void)
{
    void *lib = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);

    ck_assert_msg(lib != NULL, "%s", dlerror());
    return lib;
}

static const struct abi_net *table_of(void *lib, int version)
{
    const struct abi_net *t = abi_view_find(lib, version);

    ck_assert_msg(t != NULL, "no table of version %d", version);
    return t;
}

/* Output of a command, whole. */
static void output_of(const char *command, char *out, size_t len)
{
    FILE *p = popen(command, "r");
    size_t n;

    ck_assert_ptr_nonnull(p);
    n = fread(out, 1, len - 1, p);
    out[n] = '\0';
    ck_assert_msg(pclose(p) == 0, "'%s' failed: %s", command, out);
}

static int count_of(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++) {
        n++;
    }
    return n;
}

static int threads_now(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    if (d == NULL) {
        return -1;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

/* The tables and nothing else; NCCL takes the newest that it knows. Those of the tuner and the
 * profiler are indirect: test_offers.c. */
START_TEST(one_symbol_per_version)
{
    char command[PATH_MAX + 64], out[8192], symbol[64];

    snprintf(command, sizeof(command), "nm -D --defined-only '%s'", plugin);
    output_of(command, out, sizeof(out));
    ck_assert_msg(count_of(out, "\n") == ABI_VIEW_NEWEST - ABI_VIEW_OLDEST + 1 + 2 * 6,
                  "exports:\n%s", out);
    for (int v = ABI_VIEW_OLDEST; v <= ABI_VIEW_NEWEST; v++) {
        snprintf(symbol, sizeof(symbol), " D %s\n", abi_view_symbol(v));
        ck_assert_msg(strstr(out, symbol) != NULL, "exports:\n%s", out);
    }
    ck_assert_msg(count_of(out, " i ncclTunerPlugin_v") == 6 &&
                      count_of(out, " i ncclProfiler_v") == 6,
                  "exports:\n%s", out);
    abi_view_find(plugin_open(), 0);
    ck_assert_int_eq(abi_view.version, ABI_VIEW_NEWEST);
}
END_TEST

/* Containers have older C libraries than the machine that builds: plugin/base/r2_glibc.h. */
START_TEST(no_newer_glibc_than_2_28)
{
    char command[PATH_MAX + 64], out[16384];
    int versions = 0;

    snprintf(command, sizeof(command), "objdump -T '%s' | grep -o 'GLIBC_2\\.[0-9]*' | sort -u",
             plugin);
    output_of(command, out, sizeof(out));
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n"), versions++) {
        ck_assert_msg(atoi(line + strlen("GLIBC_2.")) <= 28, "%s", line);
    }
    ck_assert_int_gt(versions, 1);
}
END_TEST

START_TEST(dynamic_section)
{
    char command[PATH_MAX + 64], out[16384];

    snprintf(command, sizeof(command), "readelf -dW '%s'", plugin);
    output_of(command, out, sizeof(out));
    /* the last two are parts of libc in glibc before 2.34, and empty since */
    ck_assert_msg(count_of(out, "(NEEDED)") == 3 && strstr(out, "[libc.so.6]") &&
                      strstr(out, "[libdl.so.2]") && strstr(out, "[libpthread.so.0]"),
                  "%s", out);
    ck_assert_msg(strstr(out, "soname: [libnccl-net-r2.so]") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "NODELETE") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "TEXTREL") == NULL && strstr(out, "RUNPATH") == NULL &&
                      strstr(out, "RPATH") == NULL,
                  "%s", out);
}
END_TEST

START_TEST(version_can_be_found)
{
    char command[PATH_MAX + 96], out[1024];

    snprintf(command, sizeof(command),
             "strings -a '%s' | grep '^nccl-net-r2 .* wire=[0-9]* abi=v8-v12$'", plugin);
    output_of(command, out, sizeof(out));
    ck_assert_int_eq(count_of(out, "\n"), 1);
}
END_TEST

START_TEST(loading_alone_does_nothing)
{
    int before = threads_now();
    void *lib = plugin_open();

    ck_assert_int_eq(threads_now(), before);
    ck_assert_int_eq(dlclose(lib), 0);
}
END_TEST

/* Slot by slot, without any declaration of the table: how many there are, and which are NULL. 17,
 * 18: getDeviceMr and irecvConsumed, for plugins that run on the GPU; 19: makeVDevice; 20:
 * finalize; 21: setNetAttr. */
START_TEST(table_layout)
{
    static const struct {
        int slots;
        uint32_t null; /* bit per slot */
    } layout[] = {{19, 3u << 17},
                  {20, 7u << 17},
                  {20, 7u << 17},
                  {22, 7u << 17 | 1u << 21},
                  {22, 7u << 17 | 1u << 21}};
    const uint32_t null = layout[_i - ABI_VIEW_OLDEST].null;
    const int slots = layout[_i - ABI_VIEW_OLDEST].slots;
    void *const *slot = dlsym(plugin_open(), abi_view_symbol(_i));
    const ElfW(Sym) *sym = NULL;
    Dl_info info, code;

    ck_assert_ptr_nonnull(slot);
    ck_assert_int_ne(dladdr1(slot, &info, (void **)&sym, RTLD_DL_SYMENT), 0);
    ck_assert_ptr_nonnull(sym);
    ck_assert_uint_eq(sym->st_size, (size_t)slots * sizeof(void *));
    ck_assert_str_eq((const char *)slot[0], "R2");
    for (int i = 1; i < slots; i++) {
        ck_assert_msg((slot[i] == NULL) == (null >> i & 1), "slot %d", i);
        if (slot[i] == NULL) {
            continue;
        }
        ck_assert_int_ne(dladdr(slot[i], &code), 0);
        ck_assert_ptr_eq(code.dli_fbase, info.dli_fbase);
    }
}
END_TEST

/* What NCCL does at the end of some releases, and what a second communicator does after that. */
START_TEST(closing_and_opening_again)
{
    void *lib = plugin_open();
    const struct abi_net *t = table_of(lib, _i);
    const void *table = abi_view.table;
    int first = t->init(logger), second;

    ck_assert_int_eq(abi_view_finalize(), ABI_SUCCESS);
    ck_assert_int_eq(dlclose(lib), 0);
    ck_assert_str_eq(*(const char *const *)table, "R2"); /* still mapped: its threads may run */
    lib = plugin_open();
    t = table_of(lib, _i);
    ck_assert_ptr_eq(abi_view.table, table);
    second = t->init(logger);
    ck_assert_int_eq(first, second);
    ck_assert_int_eq(log_faults, 0);
}
END_TEST

START_TEST(null_is_tolerated)
{
    const struct abi_net *t = table_of(plugin_open(), _i);
    char handle[ABI_HANDLE_BYTES] = "";
    struct abi_props props;
    void *comm = (void *)1, *request = (void *)1;
    int n = 7;

    ck_assert_int_eq(t->close_send(NULL), ABI_SUCCESS);
    ck_assert_int_eq(t->close_recv(NULL), ABI_SUCCESS);
    ck_assert_int_eq(t->close_listen(NULL), ABI_SUCCESS);
    ck_assert_int_eq(t->dereg_mr(NULL, NULL), ABI_SUCCESS);
    /* before init: refused, not followed */
    ck_assert_int_ne(t->devices(&n), ABI_SUCCESS);
    ck_assert_int_eq(n, 0);
    ck_assert_int_ne(t->devices(NULL), ABI_SUCCESS);
    ck_assert_int_ne(t->get_properties(0, &props), ABI_SUCCESS);
    ck_assert_int_ne(t->get_properties(0, NULL), ABI_SUCCESS);
    ck_assert_int_ne(t->listen(0, handle, &comm), ABI_SUCCESS);
    ck_assert_ptr_null(comm);
    comm = (void *)1;
    ck_assert_int_ne(t->connect(0, handle, &comm, NULL), ABI_SUCCESS);
    ck_assert_ptr_null(comm); /* or NCCL would close it, twice */
    ck_assert_int_ne(t->listen(0, NULL, &comm), ABI_SUCCESS);
    ck_assert_int_ne(t->accept(NULL, &comm, NULL), ABI_SUCCESS);
    ck_assert_int_ne(t->reg_mr(NULL, handle, 1, ABI_PTR_HOST, &comm), ABI_SUCCESS);
    ck_assert_int_ne(t->isend(NULL, handle, 1, 0, NULL, &request), ABI_SUCCESS);
    ck_assert_int_ne(t->irecv(NULL, 1, NULL, NULL, NULL, NULL, &request), ABI_SUCCESS);
    ck_assert_int_ne(t->test(NULL, &n, NULL), ABI_SUCCESS);
    ck_assert(t->init(NULL) == t->init(logger)); /* no logger: silent, nothing else */
}
END_TEST

/* --- in a process whose libibverbs.so.1 is none --- */

/* Exit status 0 when init failed with one clear line that contains @expected. Runs as a program of
 * its own. */
static int child_without_verbs(const char *expected)
{
    void *lib = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    const struct abi_net *t = lib ? abi_view_find(lib, 0) : NULL;
    int threads = threads_now(), n = 7;

    if (t == NULL) {
        fprintf(stderr, "load: %s\n", dlerror());
        return 1;
    }
    for (int i = 0; i < 2; i++) { /* and once more: NCCL may try again for the next communicator */
        logged[0] = first_line[0] = last_warn[0] = '\0';
        if (t->init(logger) != ABI_SYSTEM_ERROR) {
            return 2;
        }
        if (strncmp(first_line, "NET/R2 : nccl-net-r2 ", 21) != 0 ||
            strstr(first_line, "wire=8 abi=v8") == NULL) {
            return 3;
        }
        if (strstr(last_warn, expected) == NULL || strstr(last_warn, "not used") == NULL) {
            fprintf(stderr, "log:\n%s", logged);
            return 4;
        }
        if (t->devices(&n) == ABI_SUCCESS || n != 0) {
            return 5;
        }
        if (log_faults) {
            return 7;
        }
    }
    return threads_now() == threads ? 0 : 6;
}

static void text_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static int run_child(const char *dir, const char *expected)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        unsetenv("LD_PRELOAD");
        setenv("LD_LIBRARY_PATH", dir, 1);
        setenv("R2_PLUGIN", plugin, 1);
        execl(self, self, "--without-verbs", expected, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(without_libibverbs)
{
    char dir[] = "/tmp/r2-noverbs-XXXXXX", lib[64];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(lib, sizeof(lib), "%s/libibverbs.so.1", dir);
    /* what is found is no library at all */
    text_write(
        lib,
        "this is not a shared object, and long enough for the loader to look at its beginning\n");
    ck_assert_int_eq(run_child(dir, "libibverbs.so.1"), 0);
    /* what is found is a library without the calls */
    ck_assert_int_eq(unlink(lib), 0);
    ck_assert_int_eq(symlink(plugin, lib), 0);
    ck_assert_int_eq(run_child(dir, "has no ibv_"), 0);
    ck_assert_int_eq(unlink(lib), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static void plugin_find(void)
{
    char dir[PATH_MAX], beside[PATH_MAX];
    const char *given = getenv("R2_PLUGIN");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    if (given == NULL) {
        snprintf(dir, sizeof(dir), "%s", self);
        snprintf(beside, sizeof(beside), "%.4000s/../../libnccl-net-r2.so", dirname(dir));
        given = beside;
    }
    if (realpath(given, plugin) == NULL) {
        fprintf(stderr, "plugin %s: %s (set R2_PLUGIN)\n", given, strerror(errno));
        exit(2);
    }
}

int main(int argc, char **argv)
{
    Suite *s = suite_create("dlopen");
    TCase *t = tcase_create("library");
    SRunner *r;
    int failed;

    plugin_find();
    if (argc == 3 && strcmp(argv[1], "--without-verbs") == 0) {
        return child_without_verbs(argv[2]);
    }
    tcase_set_timeout(t, 60);
    tcase_add_test(t, one_symbol_per_version);
    tcase_add_test(t, dynamic_section);
    tcase_add_test(t, no_newer_glibc_than_2_28);
    tcase_add_test(t, version_can_be_found);
    tcase_add_test(t, loading_alone_does_nothing);
    tcase_add_loop_test(t, table_layout, ABI_VIEW_OLDEST, ABI_VIEW_NEWEST + 1);
    tcase_add_loop_test(t, closing_and_opening_again, ABI_VIEW_OLDEST, ABI_VIEW_NEWEST + 1);
    tcase_add_loop_test(t, null_is_tolerated, ABI_VIEW_OLDEST, ABI_VIEW_NEWEST + 1);
    tcase_add_test(t, without_libibverbs);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
