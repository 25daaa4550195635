#include "r2_config.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "r2_conf_file.h"
#include "r2_config_names.h"
#include "r2_fnv.h"
#include "r2_log.h"
#include "r2_time.h"

#define OURS "NCCL_R2_"

#define AT(f) offsetof(struct r2_config, f)
static const struct r2_opt_row rows[] = {
#define R2_BOOL(field, name, def, help)                                                            \
    {#field, name, "", def, "", help, R2_OPT_BOOL, 0, 1, AT(field)},
#define R2_INT(field, name, unit, def, min, max, help)                                             \
    {#field, name, unit, def, "", help, R2_OPT_INT, min, max, AT(field)},
#define R2_ENUM(field, name, def, choices, help)                                                   \
    {#field, name, "", def, choices, help, R2_OPT_ENUM, 0, 0, AT(field)},
#define R2_STRING(field, name, def, help)                                                          \
    {#field, name, "", def, "", help, R2_OPT_STRING, 0, 0, AT(field)},
#include "r2_config.def"
#undef R2_BOOL
#undef R2_INT
#undef R2_ENUM
#undef R2_STRING
};
#define ROWS ((int)(sizeof(rows) / sizeof(rows[0])))
static_assert(sizeof(rows) / sizeof(rows[0]) <= sizeof(((struct r2_config *)0)->source),
              "a source for every row");

/* The section of every row: the marks of the table with an empty entry per row between them. */
static const char *const sections[] = {
#define R2_BOOL(field, name, def, help)                NULL,
#define R2_INT(field, name, unit, def, min, max, help) NULL,
#define R2_ENUM(field, name, def, choices, help)       NULL,
#define R2_STRING(field, name, def, help)              NULL,
#define R2_SECTION(section)                            #section,
#include "r2_config.def"
#undef R2_BOOL
#undef R2_INT
#undef R2_ENUM
#undef R2_STRING
};

const struct r2_opt_row *r2_config_rows(int *count)
{
    *count = ROWS;
    return rows;
}

const char *r2_config_section(int row)
{
    const char *section = "";

    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && row >= 0; i++) {
        if (sections[i]) {
            section = sections[i];
        } else {
            row--;
        }
    }
    return section;
}

static bool row_is_ours(const struct r2_opt_row *r)
{
    return strncmp(r->name, OURS, strlen(OURS)) == 0;
}

static int row_find(const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static int64_t *number_at(struct r2_config *cfg, const struct r2_opt_row *r)
{
    return (int64_t *)((char *)cfg + r->offset);
}

/* Index of @value among "a|b|c", -1. */
static int choice_find(const char *choices, const char *value)
{
    size_t len = strlen(value);

    for (int i = 0;; i++) {
        size_t n = strcspn(choices, "|");
        if (n == len && strncasecmp(choices, value, n) == 0) {
            return i;
        }
        if (choices[n] == '\0') {
            return -1;
        }
        choices += n + 1;
    }
}

static int bool_parse(const char *value, int64_t *out)
{
    static const char words[] = "0|1|off|on|no|yes|false|true";
    int i = choice_find(words, value);

    *out = i & 1;
    return i < 0 ? -1 : 0;
}

static int int_parse(const char *value, int64_t *out)
{
    char *end;
    long long v;

    /* strtoll alone would take leading blanks: "NCCL_X= 5" is a slip of the pen */
    if (strchr("+-0123456789", value[0]) == NULL || value[0] == '\0') {
        return -1;
    }
    errno = 0;
    v = strtoll(value, &end, 0);
    if (errno != 0 || *end != '\0' || end == value) {
        return -1;
    }
    *out = v;
    return 0;
}

static void allowed_text(const struct r2_opt_row *r, char *out, size_t len)
{
    switch (r->type) {
    case R2_OPT_BOOL:
        snprintf(out, len, "on or off (1, 0, yes, no, true, false)");
        break;
    case R2_OPT_INT:
        snprintf(out, len, "a whole number from %" PRId64 " to %" PRId64 "%s%s", r->min, r->max,
                 r->unit[0] ? " " : "", r->unit);
        break;
    case R2_OPT_ENUM:
        snprintf(out, len, "one of %s", r->choices);
        break;
    case R2_OPT_STRING:
        snprintf(out, len, "text of at most %d bytes", R2_OPT_STRING_MAX - 1);
        break;
    }
}

/* Takes @value into @cfg; -1 when it does not fit, and then @cfg is as before. */
static int value_take(struct r2_config *cfg, const struct r2_opt_row *r, const char *value)
{
    int64_t v = 0;

    switch (r->type) {
    case R2_OPT_BOOL:
        /* NCCL's own switches are numbers: any but 0 is on */
        if (bool_parse(value, &v) != 0 && (row_is_ours(r) || int_parse(value, &v) != 0)) {
            return -1;
        }
        *number_at(cfg, r) = v != 0;
        return 0;
    case R2_OPT_INT:
        if (int_parse(value, &v) != 0 || v < r->min || v > r->max) {
            return -1;
        }
        *number_at(cfg, r) = v;
        return 0;
    case R2_OPT_ENUM:
        v = choice_find(r->choices, value);
        if (v < 0) {
            return -1;
        }
        *number_at(cfg, r) = v;
        return 0;
    case R2_OPT_STRING:
        if (strlen(value) >= R2_OPT_STRING_MAX) {
            return -1;
        }
        strcpy((char *)cfg + r->offset, value);
        return 0;
    }
    return -1;
}

int r2_config_set(struct r2_config *cfg, const char *name, const char *value, char *why,
                  size_t why_len)
{
    char allowed[128];
    int i = row_find(name);

    if (i < 0) {
        snprintf(why, why_len, "%s: no such option", name);
        return -1;
    }
    if (value_take(cfg, &rows[i], value) != 0) {
        allowed_text(&rows[i], allowed, sizeof(allowed));
        snprintf(why, why_len, "%s=%.64s: expected %s", name, value, allowed);
        return -1;
    }
    return 0;
}

void r2_config_text(const struct r2_config *cfg, int row, char *out, size_t len)
{
    const struct r2_opt_row *r = &rows[row];
    const char *at = (const char *)cfg + r->offset;
    int64_t v = 0;
    const char *c = r->choices;

    if (r->type != R2_OPT_STRING) {
        v = *(const int64_t *)at;
    }
    switch (r->type) {
    case R2_OPT_BOOL:
        snprintf(out, len, "%s", v ? "on" : "off");
        break;
    case R2_OPT_INT:
        snprintf(out, len, "%" PRId64, v);
        break;
    case R2_OPT_ENUM:
        for (; v > 0 && strchr(c, '|') != NULL; v--) {
            c = strchr(c, '|') + 1;
        }
        snprintf(out, len, "%.*s", (int)strcspn(c, "|"), c);
        break;
    case R2_OPT_STRING:
        snprintf(out, len, "%s", at);
        break;
    }
}

void r2_config_defaults(struct r2_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    for (int i = 0; i < ROWS; i++) {
        int rc = value_take(cfg, &rows[i], rows[i].def);
        /* a default outside its own range is found by the first test that runs */
        assert(rc == 0);
        (void)rc;
    }
}

/* State of one r2_config_load(). */
struct load {
    struct r2_config *cfg;
    enum r2_opt_source src; /* of the pairs that come now */
    uint8_t taken[ROWS];    /* a source has spoken for this row; it was cfg->source[] */
    int overruled;          /* a value of the job lost against the lock file */
};

static const char *source_name(enum r2_opt_source s)
{
    static const char *const names[] = {
        [R2_SRC_DEFAULT] = "default",
        [R2_SRC_PROFILE] = "profile",
        [R2_SRC_ENV] = "environment",
        [R2_SRC_LOCK] = "lock.conf",
    };
    return names[s];
}

/* Warns, and keeps the first such text for listen to return. */
static void error_keep(struct load *l, const char *text)
{
    R2_WARN("%s", text);
    if (l->cfg->error[0] == '\0') {
        snprintf(l->cfg->error, sizeof(l->cfg->error), "%s", text);
    }
}

static void value_refuse(struct load *l, const struct r2_opt_row *r, const char *value)
{
    char allowed[128], text[512];

    if (!row_is_ours(r) && r->type != R2_OPT_STRING && l->src == R2_SRC_ENV) {
        /* NCCL's own habit with its own variables */
        R2_INFO("Invalid value %.64s for %s, using default %s", value, r->name, r->def);
        return;
    }
    allowed_text(r, allowed, sizeof(allowed));
    snprintf(text, sizeof(text), "%s=%.64s (%s): expected %s", r->name, value, source_name(l->src),
             allowed);
    error_keep(l, text);
}

/* A stronger source has spoken. Worth a line only if it said something else. */
static void value_overruled(struct load *l, int row, const char *value)
{
    struct r2_config *other = malloc(sizeof(*other));
    const struct r2_opt_row *r = &rows[row];
    char ours[R2_OPT_STRING_MAX], theirs[R2_OPT_STRING_MAX];

    if (other == NULL) {
        return;
    }
    *other = *l->cfg;
    r2_config_text(l->cfg, row, ours, sizeof(ours));
    if (value_take(other, r, value) == 0) {
        r2_config_text(other, row, theirs, sizeof(theirs));
    } else {
        snprintf(theirs, sizeof(theirs), "%.64s", value);
    }
    free(other);
    if (strcmp(ours, theirs) == 0) {
        return;
    }
    if (l->cfg->source[row] == R2_SRC_LOCK) {
        l->overruled = row + 1;
        R2_WARN("%s=%s (%s) overruled by lock.conf: %s", r->name, theirs, source_name(l->src),
                ours);
    } else {
        /* a profile is there to be refined: no reason to warn */
        R2_INFO("%s=%s (%s) overruled by %s: %s", r->name, theirs, source_name(l->src),
                source_name(l->cfg->source[row]), ours);
    }
}

static void value_offer(struct load *l, int row, const char *value)
{
    const struct r2_opt_row *r = &rows[row];

    /* launchers set variables to nothing to take them back; for text nothing is a value */
    if (value[0] == '\0' && r->type != R2_OPT_STRING) {
        return;
    }
    if (l->taken[row]) {
        /* twice in one file: the first counts, as setenv without overwriting does for nccl.conf */
        if (l->cfg->source[row] != l->src) {
            value_overruled(l, row, value);
        }
        return;
    }
    l->taken[row] = 1;
    if (value_take(l->cfg, r, value) == 0) {
        l->cfg->source[row] = l->src;
    } else {
        value_refuse(l, r, value);
    }
}

/* A name that no row has. @where: "lock.conf", "the environment" */
static void name_warn(const char *what, const char *name, const char *where)
{
    const char *near;

    if (!r2_config_name_odd(name, &near)) {
        return;
    }
    if (near != NULL) {
        R2_WARN("unknown %s '%.64s' in %s: did you mean %s?", what, name, where, near);
    } else {
        R2_WARN("unknown %s '%.64s' in %s", what, name, where);
    }
}

static void pair_offer(void *arg, const struct r2_conf_pair *p)
{
    struct load *l = arg;
    int row = row_find(p->name);

    if (row >= 0) {
        value_offer(l, row, p->value);
    } else {
        name_warn("option", p->name, source_name(l->src));
    }
}

static void lock_load(struct load *l, const char *path)
{
    char text[512];

    if (r2_conf_file_is_ours(path)) {
        R2_WARN("%s is ignored: this job could write it itself, so it binds nobody", path);
        return;
    }
    l->src = R2_SRC_LOCK;
    if (r2_conf_file_read(path, pair_offer, l) == 0 || errno == ENOENT || errno == ENOTDIR) {
        return;
    }
    /* an administrator's policy is there and cannot be obeyed: not to be passed over */
    snprintf(text, sizeof(text), "lock.conf %.256s cannot be read: %s", path, strerror(errno));
    error_keep(l, text);
}

static void env_load(struct load *l, const struct r2_config_sources *src)
{
    char name[64];

    l->src = R2_SRC_ENV;
    for (int i = 0; i < ROWS; i++) {
        const char *v =
            src && src->get_env ? src->get_env(src->arg, rows[i].name) : getenv(rows[i].name);
        if (v != NULL) {
            value_offer(l, i, v);
        }
    }
    for (char **e = src ? src->environ_names : NULL; e != NULL && *e != NULL; e++) {
        /* no row is so long that it would lose its end */
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
        if (row_find(name) < 0) {
            name_warn("variable", name, "the environment");
        }
    }
}

static void profile_load(struct load *l)
{
    char text[512];
    const char *path = l->cfg->profile;

    if (path[0] == '\0') {
        return;
    }
    l->src = R2_SRC_PROFILE;
    if (r2_conf_file_read(path, pair_offer, l) == 0) {
        return;
    }
    snprintf(text, sizeof(text), "NCCL_R2_PROFILE=%.255s cannot be read: %s", path,
             strerror(errno));
    error_keep(l, text);
}

void r2_config_load(struct r2_config *cfg, const struct r2_config_sources *src)
{
    struct load l = {.cfg = cfg};
    char text[512];

    r2_config_defaults(cfg);
    lock_load(&l, src && src->lock_path ? src->lock_path : R2_LOCK_PATH);
    env_load(&l, src);
    profile_load(&l);
    if (l.overruled && cfg->lock_conflict == R2_LOCK_FAIL) {
        snprintf(
            text, sizeof(text),
            "%s is pinned by lock.conf and the job set another value (NCCL_R2_LOCK_CONFLICT=fail)",
            rows[l.overruled - 1].name);
        error_keep(&l, text);
    }
}

void r2_config_log(const struct r2_config *cfg)
{
    struct r2_config *def = malloc(sizeof(*def));
    char value[R2_OPT_STRING_MAX], normal[R2_OPT_STRING_MAX];

    if (def == NULL) {
        return;
    }
    r2_config_defaults(def);
    for (int i = 0; i < ROWS; i++) {
        r2_config_text(cfg, i, value, sizeof(value));
        r2_config_text(def, i, normal, sizeof(normal));
        /* a pinned value is shown even where it is the default: the job cannot change it */
        if (strcmp(value, normal) != 0 || cfg->source[i] == R2_SRC_LOCK) {
            R2_INFO("%s=%s source=%s default=%s", rows[i].name, value, source_name(cfg->source[i]),
                    normal);
        }
    }
    free(def);
}

static uint32_t hash_text(uint32_t h, const char *text)
{
    return r2_fnv_add(h, text, strlen(text));
}

uint64_t r2_config_dead_ns(const struct r2_config *cfg)
{
    if (cfg->t_dead_ms >= 0) {
        return R2_MS(cfg->t_dead_ms);
    }
    return 4 * (4096ull << cfg->ib_timeout) * (unsigned)(cfg->ib_retry_cnt + 1) +
           R2_MS(cfg->t_packet_ms);
}

uint32_t r2_config_digest(const struct r2_config *cfg)
{
    char value[R2_OPT_STRING_MAX];
    uint32_t h = R2_FNV_BASIS;

    for (int row = 0; row < ROWS; row++) {
        if (strcmp(r2_config_section(row), "policy") == 0) {
            r2_config_text(cfg, row, value, sizeof(value));
            h = hash_text(hash_text(hash_text(hash_text(h, rows[row].name), "="), value), "\n");
        }
    }
    return h;
}

/* A text of another's variable: cut to what fits, what cannot be printed becomes '?'. */
static void foreign_text(char *out, size_t room, const char *text)
{
    snprintf(out, room, "%s", text ? text : "");
    for (char *c = out; *c; c++) {
        if (*c < 0x20 || *c > 0x7e) {
            *c = '?';
        }
    }
}

static const char *env_of(const char *(*get_env)(void *arg, const char *name), void *arg,
                          const char *name)
{
    const char *text = get_env ? get_env(arg, name) : getenv(name);

    return text ? text : "";
}

/* The first of the variables that launchers set that is a number. */
static int32_t rank_of(const char *(*get_env)(void *arg, const char *name), void *arg)
{
    static const char *const names[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = env_of(get_env, arg, names[i]);
        char *end;
        long rank;

        if (text[0] < '0' || text[0] > '9') {
            continue;
        }
        errno = 0;
        rank = strtol(text, &end, 10);
        if (*end == '\0' && errno == 0 && rank <= INT32_MAX) {
            return (int32_t)rank;
        }
    }
    return -1;
}

/* torchrun gives all jobs the id "none" unless it is told one. What is left to tell them apart, and
 * is the same for all ranks, is where they meet. Of a long name the beginning, for the port. */
static void torch_id(struct r2_job *job, const char *(*get_env)(void *arg, const char *name),
                     void *arg)
{
    const char *host = env_of(get_env, arg, "MASTER_ADDR"),
               *port = env_of(get_env, arg, "MASTER_PORT");
    char text[sizeof(job->id)];

    snprintf(text, sizeof(text), "%.57s:%.5s", host, port);
    foreign_text(job->id, sizeof(job->id), host[0] && port[0] ? text : "");
    if (job->id[0] == '\0') {
        job->scheduler[0] = '\0';
    }
}

void r2_config_job(struct r2_job *job, const char *(*get_env)(void *arg, const char *name),
                   void *arg)
{
    static const struct {
        const char *scheduler, *id, *step;
    } known[] = {
        {"slurm", "SLURM_JOB_ID", "SLURM_STEP_ID"},
        {"flux", "FLUX_JOB_ID", NULL},
        {"pbs", "PBS_JOBID", NULL},
        {"lsf", "LSB_JOBID", NULL},
        {"torchelastic", "TORCHELASTIC_RUN_ID", NULL},
    };

    memset(job, 0, sizeof(*job));
    job->rank = rank_of(get_env, arg);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *id = env_of(get_env, arg, known[i].id);

        if (id[0] == '\0') {
            continue;
        }
        foreign_text(job->scheduler, sizeof(job->scheduler), known[i].scheduler);
        foreign_text(job->id, sizeof(job->id), id);
        if (known[i].step) {
            foreign_text(job->step, sizeof(job->step), env_of(get_env, arg, known[i].step));
        } else if (strcmp(known[i].scheduler, "torchelastic") == 0 && strcmp(id, "none") == 0) {
            torch_id(job, get_env, arg);
        }
        return;
    }
}
