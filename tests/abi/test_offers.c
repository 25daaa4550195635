/*
 * The tuner's and the profiler's tables as NCCL gets them: by dlsym(), and only when their variable
 * names the library (docs/abi.md). The declarations here are a reading of NCCL's headers
 * that shares nothing with the plugin's.
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSIONS 6
#define ALGOS    7
#define PROTOS   3

struct table { /* a name, then calls */
    const char *name;
    void *call[5];
};

static char plugin[PATH_MAX];

static const struct table *find(const char *family, int version)
{
    void *lib = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    char symbol[64];

    ck_assert_msg(lib != NULL, "%s", dlerror());
    snprintf(symbol, sizeof(symbol), "%s%d", family, version);
    return dlsym(lib, symbol);
}

static const struct table *tuner(int version)
{
    return find("ncclTunerPlugin_v", version);
}

static const struct table *profiler(int version)
{
    return find("ncclProfiler_v", version);
}

static const char *const others[] = {NULL,
                                     "",
                                     "none",
                                     "ofi",
                                     "libnccl-tuner.so",
                                     "/opt/libnccl-net-ofi.so",
                                     "libnccl-net-r2.s",
                                     "/libnccl-net-r2.so/other.so"};

START_TEST(nothing_unless_named)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        for (const char *const *v =
                 (const char *const[]){"NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", NULL};
             *v; v++) {
            if (others[i]) {
                setenv(*v, others[i], 1);
            } else {
                unsetenv(*v);
            }
        }
        for (int v = 1; v <= VERSIONS; v++) {
            ck_assert_msg(tuner(v) == NULL && profiler(v) == NULL, "version %d, '%s'", v,
                          others[i] ? others[i] : "unset");
        }
    }
}
END_TEST

START_TEST(each_by_its_own_variable)
{
    setenv("NCCL_TUNER_PLUGIN", plugin, 1);
    unsetenv("NCCL_PROFILER_PLUGIN");
    ck_assert(tuner(5) != NULL && profiler(5) == NULL);
    unsetenv("NCCL_TUNER_PLUGIN");
    setenv("NCCL_PROFILER_PLUGIN", "libnccl-net-r2.so.0", 1);
    ck_assert(tuner(5) == NULL && profiler(5) != NULL);
    setenv("NCCL_TUNER_PLUGIN", "libnccl-net.so", 1);
    ck_assert(tuner(5) != NULL);
    ck_assert(tuner(7) == NULL && profiler(7) == NULL);
}
END_TEST

/* What a tuner may change, and a copy of it. */
struct choice {
    float cost[ALGOS][PROTOS];
    int algo, proto, channels;
    double constants[64];
    int domains[3];
};

static int tuner_init(int version, const struct table *t, void **ctx, struct choice *c)
{
    if (version == 1) {
        return ((int (*)(size_t, size_t, void *))t->call[0])(16, 2, NULL);
    }
    if (version < 5) {
        return ((int (*)(size_t, size_t, void *, void **))t->call[0])(16, 2, NULL, ctx);
    }
    return ((int (*)(void **, uint64_t, size_t, size_t, void *, void *, void *))t->call[0])(
        ctx, 7, 16, 2, NULL, c->domains, c->constants);
}

static int tuner_ask(int version, const struct table *t, void *ctx, struct choice *c, int func,
                     size_t bytes)
{
    float **cost = (float **)(void *)c->cost;

    switch (version) {
    case 1:
        return ((int (*)(int, size_t, int, int, int, int *, int *, int *))t->call[1])(
            func, bytes, 1, 1, 1, &c->algo, &c->proto, &c->channels);
    case 2:
        return ((int (*)(void *, int, size_t, int, int, int, int *, int *, int *))t->call[1])(
            ctx, func, bytes, 1, 1, 1, &c->algo, &c->proto, &c->channels);
    case 3:
        return ((int (*)(void *, int, size_t, int, float **, int, int, int *))t->call[1])(
            ctx, func, bytes, 1, cost, ALGOS, PROTOS, &c->channels);
    default:
        return ((int (*)(void *, int, size_t, int, float **, int, int, int, int *))t->call[1])(
            ctx, func, bytes, 1, cost, ALGOS, PROTOS, 1, &c->channels);
    }
}

START_TEST(tuner_leaves_everything_as_it_is)
{
    const struct table *t;
    struct choice c, before;
    void *ctx = &c;

    setenv("NCCL_TUNER_PLUGIN", plugin, 1);
    t = tuner(_i);
    ck_assert_ptr_nonnull(t);
    ck_assert_str_eq(t->name, "R2");
    for (size_t i = 0; i < sizeof(c) / sizeof(int); i++) {
        ((int *)&c)[i] = (int)(i * 2654435761u);
    }
    before = c;
    ck_assert_int_eq(tuner_init(_i, t, &ctx, &c), 0);
    for (int func = 0; func < 11; func++) {
        for (size_t bytes = 0; bytes < (size_t)1 << 40; bytes = bytes * 2 + 1) {
            ck_assert_int_eq(tuner_ask(_i, t, ctx, &c, func, bytes), 0);
        }
    }
    ck_assert_mem_eq(&c, &before, sizeof(c));
    ck_assert_int_eq(((int (*)(void *))t->call[2])(ctx), 0);
    ck_assert(_i != 6 || t->call[3] == NULL); /* the chunk's size is NCCL's */
}
END_TEST

START_TEST(profiler_asks_for_no_event)
{
    const struct table *t;
    void *ctx = &t, *event = &t;
    int events = 0xff, rc;

    setenv("NCCL_PROFILER_PLUGIN", plugin, 1);
    t = profiler(_i);
    ck_assert_ptr_nonnull(t);
    ck_assert_str_eq(t->name, "R2");
    if (_i <= 3) {
        rc = ((int (*)(void **, int *))t->call[0])(&ctx, &events);
    } else if (_i == 4) {
        rc = ((int (*)(void **, int *, const char *, uint64_t, int, int, int, void *))t->call[0])(
            &ctx, &events, "name", 7, 2, 16, 3, NULL);
    } else {
        rc = ((int (*)(void **, uint64_t, int *, const char *, int, int, int, void *))t->call[0])(
            &ctx, 7, &events, NULL, 2, 16, 3, NULL);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_eq(events, 0);
    ck_assert_int_eq(((int (*)(void *, void **, void *))t->call[1])(ctx, &event, &events), 0);
    ck_assert_ptr_null(event);
    ck_assert_int_eq(((int (*)(void *, int, void *))t->call[3])(NULL, 0, NULL), 0);
    ck_assert_int_eq(((int (*)(void *))t->call[2])(NULL), 0);
    ck_assert_int_eq(((int (*)(void *))t->call[4])(ctx), 0);
}
END_TEST

static void plugin_find(void)
{
    char self[PATH_MAX], beside[PATH_MAX];
    const char *given = getenv("R2_PLUGIN");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    snprintf(beside, sizeof(beside), "%.4000s/../../libnccl-net-r2.so", dirname(self));
    if (realpath(given ? given : beside, plugin) == NULL) {
        fprintf(stderr, "plugin %s: %s (set R2_PLUGIN)\n", given ? given : beside, strerror(errno));
        exit(2);
    }
}

int main(void)
{
    Suite *s = suite_create("offers");
    TCase *t = tcase_create("tuner and profiler");
    SRunner *r;
    int failed;

    plugin_find();
    tcase_add_test(t, nothing_unless_named);
    tcase_add_test(t, each_by_its_own_variable);
    tcase_add_loop_test(t, tuner_leaves_everything_as_it_is, 1, VERSIONS + 1);
    tcase_add_loop_test(t, profiler_asks_for_no_event, 1, VERSIONS + 1);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
