/*
 * Options. Each is one row of r2_config.def: parsing, validation, the log at init, README's table
 * and the manual page all come from the rows. The environment is read in one place, once, at init.
 *
 * Sources, strongest first: lock file (the administrator's), environment, profile file
 * (NCCL_R2_PROFILE), default. A bad value never fails init (NCCL would silently fall back to its
 * own transport): it is kept as an error text that listen returns.
 */
#ifndef R2_CONFIG_H
#define R2_CONFIG_H

#include <stddef.h>
#include <stdint.h>

enum r2_opt_type { R2_OPT_BOOL, R2_OPT_INT, R2_OPT_ENUM, R2_OPT_STRING };
enum r2_opt_source { R2_SRC_DEFAULT, R2_SRC_PROFILE, R2_SRC_ENV, R2_SRC_LOCK };

#define R2_OPT_STRING_MAX 256

/* The administrator's file. Compiled in: no variable of a job may move it. */
#ifndef R2_LOCK_PATH
#define R2_LOCK_PATH "/etc/nccl-net-r2/lock.conf"
#endif

enum r2_ack_mode { R2_ACK_E2E, R2_ACK_CQE, R2_ACK_FLUSH };
enum r2_relay_mode { R2_VIA_NONE, R2_VIA_GPU, R2_VIA_HOST };
enum r2_backup_scope { R2_BACKUP_RAIL, R2_BACKUP_ANY };
enum r2_failback { R2_FAILBACK_AUTO, R2_FAILBACK_MANUAL, R2_FAILBACK_NEVER };
enum r2_lock_conflict { R2_LOCK_WARN, R2_LOCK_FAIL };
enum r2_oob_backend { R2_OOB_TCP, R2_OOB_MPI, R2_OOB_AUTO };
enum r2_flush_mode { R2_FLUSH_AUTO, R2_FLUSH_ALWAYS };

/* Values. One field per row of r2_config.def, same name. Times in the unit of the row. Const after
 * init. */
struct r2_config {
#define R2_BOOL(field, name, def, help)                int64_t field;
#define R2_INT(field, name, unit, def, min, max, help) int64_t field;
#define R2_ENUM(field, name, def, choices, help)       int64_t field; /* index into choices, "a|b|c" */
#define R2_STRING(field, name, def, help)              char field[R2_OPT_STRING_MAX];
#include "r2_config.def"
#undef R2_BOOL
#undef R2_INT
#undef R2_ENUM
#undef R2_STRING
    char error[512]; /* first value that could not be taken: variable, value, what is allowed. Empty
                        when all is well */
    uint8_t source[80]; /* enum r2_opt_source by row index */
};

/* R2_MOST_field: the largest value of each row that is a whole number. */
enum r2_config_most {
#define R2_BOOL(field, name, def, help)
#define R2_INT(field, name, unit, def, min, max, help) R2_MOST_##field = (max),
#define R2_ENUM(field, name, def, choices, help)
#define R2_STRING(field, name, def, help)
#include "r2_config.def"
#undef R2_BOOL
#undef R2_INT
#undef R2_ENUM
#undef R2_STRING
};

/* One row, for tools and logs. */
struct r2_opt_row {
    const char *field, *name, *unit, *def, *choices, *help;
    enum r2_opt_type type;
    int64_t min, max;
    size_t offset;
};
const struct r2_opt_row *r2_config_rows(int *count);
/* Section of r2_config.def that the row stands in. */
const char *r2_config_section(int row);

struct r2_config_sources {
    const char *(*get_env)(void *arg, const char *name); /* NULL: getenv */
    void *arg;
    char **environ_names;  /* for unknown names (r2_config_names.h): "NAME=value" list, NULL
                              terminated; NULL: none checked */
    const char *lock_path; /* NULL: the compiled-in path */
};

/*
 * Reads all sources into *cfg. Never fails: see cfg->error. Logs one WARN per overruled or unknown
 * name and per bad value. Thread: init only.
 */
void r2_config_load(struct r2_config *cfg, const struct r2_config_sources *src);

/* Defaults only; for tests and simulation. */
void r2_config_defaults(struct r2_config *cfg);

/* Sets one row by variable name from text; 0, or -1 with the reason in @why. For tests and tools.
 */
int r2_config_set(struct r2_config *cfg, const char *name, const char *value, char *why,
                  size_t why_len);

/* Text of a row's present value. */
void r2_config_text(const struct r2_config *cfg, int row, char *out, size_t len);

/* One INFO line per row that is not at its default or is pinned by the lock file, with its source.
 */
void r2_config_log(const struct r2_config *cfg);

/* The job that a scheduler or launcher has started this process for, from its own variables. Empty:
 * none is known. Its rank may be known though it is not. */
struct r2_job {
    char scheduler[16], id[64], step[32]; /* "slurm", ... */
    int32_t rank;                         /* of this process in it; -1: not known */
};
/* Reads it. @get_env as in r2_config_sources, NULL: getenv. Thread: init only. */
void r2_config_job(struct r2_job *job, const char *(*get_env)(void *arg, const char *name),
                   void *arg);

/* ns: how long a quarantine lasts that no fence of either end will end (P18 c): NCCL_R2_T_DEAD, by
 * default the longest repetition of RC, (NCCL_IB_RETRY_CNT + 1) time-outs of up to four times the
 * nominal one (IBTA 9.7.6.1.3; a ConnectX-6 needs 59.8 s where that makes 137 s), and
 * NCCL_R2_T_PACKET. Any thread. */
uint64_t r2_config_dead_ns(const struct r2_config *cfg);

/* FNV-1a 32 over names and values of the rows of section "policy": exchanged at connect to notice
 * hosts that differ. */
uint32_t r2_config_digest(const struct r2_config *cfg);

#endif
