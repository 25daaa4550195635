/*
 * Options from the environment, a profile and the administrator's lock file, and lists of NICs as
 * NCCL_IB_HCA has them. The input is a number of parts, each ended by a zero byte: the lock file,
 * the profile, then assignments of the environment, then lists.
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "ib_transport/verbs/ib_hca.h"
#include "base/r2_conf_file.h"
#include "base/r2_config.h"
#include "base/r2_log.h"

#define ENV_MAX 8

struct env {
    char text[ENV_MAX][1200];
    char *list[ENV_MAX + 1];
};

/* The lock file counts whoever runs this. */
int __wrap_r2_conf_file_is_ours(const char *path);
int __real_r2_conf_file_is_ours(const char *path);
int __wrap_r2_conf_file_is_ours(const char *path)
{
    (void)__real_r2_conf_file_is_ours(path);
    return 0;
}

static const char *get_env(void *arg, const char *name)
{
    const struct env *e = arg;
    size_t n = strlen(name);

    for (int i = 0; e->list[i]; i++) {
        if (strncmp(e->list[i], name, n) == 0 && e->list[i][n] == '=') {
            return e->list[i] + n + 1;
        }
    }
    return NULL;
}

/* A file with the next part, zero bytes as '\1' in it. */
static int file_make(struct fuzz_in *in, char *path, size_t len)
{
    char text[6000];
    size_t n = fuzz_text(in, text, sizeof(text));
    int fd = memfd_create("options", MFD_CLOEXEC);

    FUZZ_CHECK(fd >= 0);
    for (size_t i = 0; i < n; i++) {
        text[i] = text[i] == '\1' ? '\0' : text[i];
    }
    FUZZ_CHECK(write(fd, text, n) == (ssize_t)n);
    snprintf(path, len, "/proc/self/fd/%d", fd);
    return fd;
}

static void pair(void *arg, const struct r2_conf_pair *p)
{
    FUZZ_CHECK(strlen(p->name) <= R2_CONF_WORD_MAX && strlen(p->value) <= R2_CONF_WORD_MAX);
    FUZZ_CHECK(r2_conf_name_distance(p->name, p->name, 2) == (strlen(p->name) < 63 ? 0 : 3));
    FUZZ_CHECK(r2_conf_name_distance(p->name, p->value, 2) ==
               r2_conf_name_distance(p->value, p->name, 2));
}

/* Whatever the sources are, a configuration is a right one: every value is in its range and can be
 * given again. */
static void config_check(const struct r2_config *cfg)
{
    char text[R2_OPT_STRING_MAX], why[256];
    int rows;
    const struct r2_opt_row *row = r2_config_rows(&rows);
    struct r2_config *again = malloc(sizeof(*again));

    FUZZ_CHECK(again != NULL && memchr(cfg->error, 0, sizeof(cfg->error)) != NULL);
    r2_config_defaults(again);
    for (int i = 0; i < rows; i++) {
        const char *at = (const char *)cfg + row[i].offset;

        if (row[i].type == R2_OPT_STRING) {
            FUZZ_CHECK(memchr(at, 0, R2_OPT_STRING_MAX) != NULL);
        } else if (row[i].type == R2_OPT_INT) {
            FUZZ_CHECK(*(const int64_t *)at >= row[i].min && *(const int64_t *)at <= row[i].max);
        }
        FUZZ_CHECK(cfg->source[i] <= R2_SRC_LOCK);
        r2_config_text(cfg, i, text, sizeof(text));
        FUZZ_CHECK(r2_config_set(again, row[i].name, text, why, sizeof(why)) == 0);
    }
    FUZZ_CHECK(r2_config_digest(again) == r2_config_digest(cfg));
    r2_config_log(cfg);
    free(again);
}

static void config_run(struct fuzz_in *in)
{
    struct env *e = calloc(1, sizeof(*e));
    struct r2_config *cfg = malloc(sizeof(*cfg));
    char lock[64], profile[64];
    int lock_fd = file_make(in, lock, sizeof(lock)),
        profile_fd = file_make(in, profile, sizeof(profile));
    struct r2_config_sources src = {
        .get_env = get_env, .arg = e, .environ_names = e->list, .lock_path = lock};
    int n = 0;

    FUZZ_CHECK(e != NULL && cfg != NULL);
    snprintf(e->text[n], sizeof(e->text[n]), "NCCL_R2_PROFILE=%s", profile);
    e->list[n] = e->text[n];
    for (n++; n < ENV_MAX && fuzz_more(in); n++) {
        fuzz_text(in, e->text[n], sizeof(e->text[n]));
        e->list[n] = e->text[n];
        if (e->text[n][0] == '!') { /* the rest are lists */
            break;
        }
    }
    e->list[n] = NULL;
    r2_config_load(cfg, &src);
    config_check(cfg);
    FUZZ_CHECK(r2_conf_file_read(lock, pair, NULL) == 0 &&
               r2_conf_file_read(profile, pair, NULL) == 0);
    close(lock_fd);
    close(profile_fd);
    free(cfg);
    free(e);
}

static void hca_run(struct fuzz_in *in)
{
    static const char *const names[] = {"mlx5_0", "mlx5_10", "fab1", ""};
    char spec[6000], why[128] = "";
    struct ib_hca_filter f;
    int rail, ok;

    fuzz_text(in, spec, sizeof(spec));
    ok = ib_hca_parse(&f, spec, why, sizeof(why)) == 0;
    FUZZ_CHECK(f.count >= 0 && f.count <= IB_HCA_MAX &&
               (ok || (f.count == 0 && !f.exclude && why[0])));
    for (int i = 0; i < f.count; i++) {
        FUZZ_CHECK(memchr(f.entry[i].name, 0, sizeof(f.entry[i].name)) != NULL);
        FUZZ_CHECK(f.entry[i].port >= -1 && f.entry[i].rail >= -1 && f.entry[i].plane >= -1);
    }
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int rank = ib_hca_rank(&f, names[i], 1), match = ib_hca_match(&f, names[i], 1, &rail);

        FUZZ_CHECK(rank >= -1 && rank < f.count);
        FUZZ_CHECK(match == (f.exclude ? f.count && rank < 0 : !f.count || rank >= 0));
        FUZZ_CHECK(rail >= -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};

    config_run(&in);
    while (fuzz_more(&in)) {
        hca_run(&in);
    }
    r2_log_flush();
    return 0;
}
