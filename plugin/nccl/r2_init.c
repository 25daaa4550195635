#include "r2_init.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_rundir.h"
#include "bounce/r2_cuda.h"
#include "bounce/r2_last_copies.h"
#include "core/r2_inst.h"
#include "ib_transport/tcp/tcpdev.h"
#include "oob/oob_mpi_load.h"
#include "r2_init_last.h"
#include "r2_init_texts.h"

#define TEXT_OF(x)  #x
#define TEXT_OF2(x) TEXT_OF(x)

/* Found by strings(1) in the library, and the first line of the log. */
static const char ident[] =
    "nccl-net-r2 " R2_VERSION " " R2_GIT " wire=" TEXT_OF2(FO_PROTO_VERSION) " abi=v8-v12";

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Both are written under init_lock. owner is the process that made the instance: after fork() the
 * child has a copy of the pointer and none of the threads behind it. Release at init, acquire by
 * whoever asks: inst first, then owner.
 */
static _Atomic(struct r2_inst *) instance;
static _Atomic pid_t owner;

struct r2_inst *r2_init_instance(void)
{
    if (atomic_load_explicit(&owner, memory_order_acquire) != getpid()) {
        return NULL;
    }
    return atomic_load_explicit(&instance, memory_order_acquire);
}

/* Of the options; the first one is what listen says. What has been said already is not announced
 * again.
 */
static void config_error(struct r2_config *cfg, const char *name, const char *why)
{
    char text[sizeof(cfg->error)];

    snprintf(text, sizeof(text), "%s%s", name, why);
    if (strcmp(text, cfg->error) == 0) {
        return;
    }
    R2_WARN("%s", text);
    if (cfg->error[0] == '\0') {
        strcpy(cfg->error, text);
    }
}

static void text_refuse(void *arg, const char *why)
{
    config_error(arg, "", why);
}

static void config_read(struct r2_config *cfg)
{
    struct r2_config_sources src = {.environ_names = environ};

    r2_config_load(cfg, &src);
    r2_log_level_set((enum r2_log_level)cfg->log_level);
    r2_init_texts_check(cfg, text_refuse, cfg);
    r2_config_log(cfg);
}

/*
 * @arg is the instance, whose devices are open by now: their interfaces are for data. A choice that
 * cannot be obeyed is an error of the options, for listen to return: of an error here NCCL would
 * make a silent change of networks.
 */
static struct r2_oob *oob_create_tcp(void *arg, const struct r2_oob_events *ev, char *why,
                                     size_t why_len)
{
    struct r2_inst *inst = arg;
    struct r2_config *cfg = &inst->cfg;
    const char **avoid = ib_nics_netdevs(&inst->nics);
    struct r2_oob_tcp_config tcp = {
        .ifname = cfg->oob_ifname[0] ? cfg->oob_ifname : cfg->socket_ifname,
        .family = cfg->socket_family,
        .avoid = (const char *const *)avoid,
    };
    struct r2_oob *oob = r2_oob_tcp_create(&tcp, ev, why, why_len);

    if (oob == NULL && (tcp.ifname[0] || tcp.family[0])) {
        /* the family is named by the reason itself */
        const char *name = strncmp(why, "NCCL_", 5) == 0 ? ""
                           : cfg->oob_ifname[0]          ? "NCCL_R2_OOB_IFNAME: "
                                                         : "NCCL_SOCKET_IFNAME: ";

        config_error(cfg, name, why);
        tcp.ifname = tcp.family = "";
        oob = r2_oob_tcp_create(&tcp, ev, why, why_len);
    }
    free(avoid);
    return oob;
}

/* @ev->arg is the instance. */
static struct r2_oob *oob_create(void *arg, const struct r2_oob_events *ev, char *why,
                                 size_t why_len)
{
    struct r2_inst *inst = ev->arg;
    struct r2_oob_mpi_params mpi = {
        .env = &inst->env, .log = r2_log_write, .tcp_create = oob_create_tcp, .tcp_arg = inst};
    struct r2_oob *oob;

    if (inst->cfg.oob == R2_OOB_TCP) {
        return oob_create_tcp(inst, ev, why, why_len);
    }
    oob = r2_oob_mpi_load(&mpi, ev, why, why_len);
    if (oob != NULL) {
        return oob;
    }
    if (inst->cfg.oob == R2_OOB_MPI) {
        config_error(&inst->cfg, "NCCL_R2_OOB=mpi: ", why);
    } else {
        R2_INFO("out-of-band channel by TCP: no MPI: %s", why);
    }
    return oob_create_tcp(inst, ev, why, why_len);
}

/*
 * The end of the process, by exit() or by a return from main. Registered at init, so it runs before
 * the destructors of libraries, in particular libibverbs' and its providers'. Other threads may
 * still be inside the plugin: nothing is freed.
 */
static void exit_notify(void)
{
    struct r2_inst *inst = r2_init_instance();

    if (inst != NULL) {
        r2_inst_exit_notify(inst);
        tcpdev_exit();
    }
}

static void exit_notify_register(void)
{
    static int done; /* under init_lock; children of fork() inherit the registration with this */

    if (!done && atexit(exit_notify) == 0) {
        done = 1;
    }
}

/*
 * What this host looks like; NULL, with a warning, where it cannot be read, since weights by the
 * ports alone are better than none. For some milliseconds, on the thread that initialises NCCL's
 * networks. The caller frees it.
 */
static struct topo *topo_read(const struct r2_config *cfg)
{
    struct topo_source source;
    struct topo *t;
    char why[600];

    if (r2_init_topo_source(cfg->topo, &source) <= 0) {
        return NULL;
    }
    t = malloc(sizeof(*t));
    if (t == NULL || topo_load(&source, t, why, sizeof(why)) != 0) {
        R2_WARN("NCCL_R2_TOPO=%s: %s. Weights and order of NICs go by their ports alone", cfg->topo,
                t ? why : "out of memory");
        free(t);
        return NULL;
    }
    R2_INFO("topology by NCCL_R2_TOPO=%s: %u NIC ports, %u GPUs, %u NUMA nodes", cfg->topo, t->nics,
            t->gpus, t->numas);
    return t;
}

/* For the life of the process, like whatever it gives memory to. Any thread. */
static int copy_open(const struct ib_copy_ops **ops, void **arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct r2_cuda *cuda;
    char why[256] = "";
    int rc;

    pthread_mutex_lock(&lock);
    rc = cuda ? 0 : r2_cuda_open(NULL, &cuda, why, sizeof(why));
    pthread_mutex_unlock(&lock);
    if (rc != 0) {
        R2_INFO(
            "whether NICs can write to memory of a GPU is not tested, whether they can read it is: %s",
            why);
        return rc;
    }
    *ops = &r2_cuda_ops;
    *arg = cuda;
    return 0;
}

/* Goes on without: no path is bounced. */
static struct r2_cuda *cuda_open(const struct r2_config *cfg, struct r2_inst_params *p)
{
    struct r2_cuda *cuda = NULL;
    char why[256] = "";

    if (cfg->relay == R2_VIA_NONE) {
        return NULL;
    }
    if (r2_cuda_open(NULL, &cuda, why, sizeof(why)) != 0) {
        R2_WARN("NCCL_R2_RELAY has no effect: %s", why);
        return NULL;
    }
    p->copy = &r2_cuda_ops;
    p->copy_arg = cuda;
    return cuda;
}

/*
 * NULL with the reason. @level is how loud that is: a host without devices is a normal one, an
 * installation that does not work has to be read about.
 */
static struct r2_inst *instance_create(enum r2_log_level *level, char *why, size_t why_len)
{
    struct r2_config *cfg = malloc(sizeof(*cfg));
    struct r2_inst_params p = {.cfg = cfg, .oob_create = oob_create};
    struct r2_inst *inst = NULL;
    struct r2_cuda *cuda;
    struct ib_verbs verbs;
    struct topo *topo;
    struct r2_job job;
    struct r2_env env;
    char host[256] = "?", reason[512] = "";
    int rc;

    if (cfg == NULL) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    config_read(cfg);
    if (cfg->ib_disable) {
        *level = R2_LOG_INFO;
        snprintf(why, why_len, "NCCL_IB_DISABLE is set");
    } else if (ib_verbs_load(&verbs, reason, sizeof(reason)) != 0) {
        snprintf(why, why_len, "no verbs: %s", reason);
    } else {
        rc = ib_verbs_err(verbs.fork_init());
        if (rc != 0) {
            R2_INFO("ibv_fork_init: %s: children of fork() may disturb registered memory",
                    strerror(rc));
        }
        r2_last_copies_set(copy_open);
        if (r2_init_last(cfg, &verbs, reason, sizeof(reason)) != 0) {
            config_error(cfg, "NCCL_R2_LAST_RESORT: ", reason);
        }
        r2_env_default(&env);
        gethostname(host, sizeof(host) - 1);
        host[strcspn(host, ".")] = '\0';
        if (cfg->hostid[0]) {
            snprintf(host, sizeof(host), "%.*s", (int)sizeof(host) - 1, cfg->hostid);
        }
        p.env = &env;
        p.verbs = &verbs;
        p.host = host;
        r2_config_job(&job, NULL, NULL);
        p.job = &job;
        p.run_dir = r2_rundir_find(cfg->run_dir, reason, sizeof(reason));
        if (p.run_dir == NULL) {
            r2_log_write(cfg->run_dir[0] ? R2_LOG_WARN : R2_LOG_INFO, __FILE__, __LINE__,
                         "%s: no host registry, no drain files, no statistics", reason);
        }
        p.topo = topo = topo_read(cfg);
        p.copy_open = copy_open;
        cuda = cuda_open(cfg, &p);
        inst = r2_inst_create(
            &p, why, why_len); /* there to the end of the process, as is what it copies with */
        free(topo);
        if (inst == NULL) {
            r2_cuda_close(cuda);
        }
    }
    free(cfg);
    return inst;
}

/* Under init_lock. */
static enum r2_status instance_begin(void)
{
    enum r2_log_level level = R2_LOG_WARN;
    char why[600] = "";
    struct r2_inst *inst;

    R2_INFO("%s", ident);
    inst = instance_create(&level, why, sizeof(why));
    if (inst != NULL && r2_net_devices(inst) == 0) {
        r2_inst_destroy(inst);
        inst = NULL;
        level = R2_LOG_INFO;
        snprintf(why, sizeof(why), "no RDMA device that this process may use");
    }
    if (inst == NULL) {
        r2_log_write(
            level, __FILE__, __LINE__,
            "not used: %s. NCCL goes on with its next network; with NCCL_NET=R2 it stops instead",
            why);
        return R2_ERR_SYSTEM;
    }
    atomic_store_explicit(&instance, inst, memory_order_release);
    atomic_store_explicit(&owner, getpid(), memory_order_release);
    exit_notify_register();
    return R2_OK;
}

enum r2_status r2_init(r2_log_sink_fn sink)
{
    enum r2_status s = R2_OK;

    pthread_mutex_lock(&init_lock);
    r2_log_sink_set(sink);
    if (r2_init_instance() == NULL) {
        s = instance_begin();
    }
    pthread_mutex_unlock(&init_lock);
    return s;
}
