/* Cases of what the versions of the table differ in. */
#include "tests/abi/drv.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE   ((void *)0x5a5a5a5a)
#define TOO_BIG ((1ull << 32) + 100) /* as an int: 100 */

static const struct abi_net_v9 *t9(void)
{
    return abi_view.table;
}
static const struct abi_net_v10 *t10(void)
{
    return abi_view.table;
}
static const struct abi_net_v11 *t11(void)
{
    return abi_view.table;
}

/* --- properties --- */

/* The plugin's own words about @dev, and not a byte behind them. */
static void props_read(int dev, void *out, size_t size)
{
    unsigned char room[512];

    memset(room, 0xa5, sizeof(room));
    OK(abi_view.version >= 11 ? t11()->get_properties(dev, room)
                              : t9()->get_properties(dev, (void *)room));
    for (size_t i = size; i < sizeof(room); i++) {
        NEED(room[i] == 0xa5, "byte %zu was written: the properties have %zu", i, size);
    }
    memcpy(out, room, size);
}

static void props_new_check(const char *name, int dev, int flush, int ndevs, const int32_t *devs,
                            uint64_t p2p, uint64_t coll)
{
    NEED(flush == 0, "%s: forceFlush %d", name, flush);
    NEED(ndevs == 1 && devs[0] == dev, "%s: made of %d devices, the first %d", name, ndevs,
         devs[0]);
    NEED(p2p == 1u << 30, "%s: maxP2pBytes %llu", name, (unsigned long long)p2p);
    NEED(coll > 0 && coll <= ABI_SIZE_LIMIT, "%s: maxCollBytes %llu", name,
         (unsigned long long)coll);
}

static void properties_of_the_version(void)
{
    struct abi_props p;
    struct abi_props_v11 v11;
    struct abi_props_v12 v12;

    for (int dev = 0; dev < drv.ndev; dev++) {
        OK(drv.net->get_properties(dev, &p));
        if (abi_view.version == 12) {
            props_read(dev, &v12, sizeof(v12));
            NEED(strcmp(v12.name, p.name) == 0 && v12.device_type == ABI_DEVICE_HOST, "%s",
                 v12.name);
            props_new_check(v12.name, dev, v12.force_flush, v12.ndevs, v12.devs, v12.max_p2p_bytes,
                            v12.max_coll_bytes);
            NEED(v12.max_multi_request == 1, "maxMultiRequestSize %d", v12.max_multi_request);
            NEED(v12.rail == ABI_ID_UNDEF && v12.plane == ABI_ID_UNDEF, "rail %d, plane %d",
                 v12.rail, v12.plane);
            continue;
        }
        props_read(dev, &v11, abi_view.version == 11 ? sizeof(v11) : sizeof(v11.v9));
        NEED(strcmp(v11.v9.name, p.name) == 0 && v11.v9.device_type == ABI_DEVICE_HOST, "%s",
             v11.v9.name);
        props_new_check(v11.v9.name, dev, v11.v9.force_flush, v11.v9.ndevs, v11.v9.devs,
                        v11.v9.max_p2p_bytes, v11.v9.max_coll_bytes);
        NEED(abi_view.version < 11 || v11.max_multi_request == 1, "maxMultiRequestSize %d",
             v11.max_multi_request);
    }
}

static void rails_and_planes(void)
{
    static const int16_t want[2][2] = {{4, 1}, {5, ABI_ID_UNDEF}};
    struct abi_props_v12 p;

    NEED(drv.ndev == 2, "%d devices", drv.ndev);
    for (int dev = 0; dev < 2; dev++) {
        props_read(dev, &p, sizeof(p));
        NEED(p.rail == want[dev][0] && p.plane == want[dev][1], "%s: rail %d, plane %d", p.name,
             p.rail, p.plane);
    }
}

static void flush_is_asked_for(void)
{
    struct abi_props_v12 p = {0};
    struct abi_props_v11 p11 = {0};

    if (abi_view.version == 12) {
        props_read(0, &p, sizeof(p));
    } else {
        props_read(0, &p11, abi_view.version == 11 ? sizeof(p11) : sizeof(p11.v9));
    }
    NEED(p.force_flush + p11.v9.force_flush == 1, "forceFlush %d",
         p.force_flush + p11.v9.force_flush);
}

/* --- sizes, marks, profiler handles --- */

/* A size that an int cannot hold must not become another one. */
static void sizes_beyond_int(void)
{
    char *buf = drv_map(8192);
    struct drv_link l;
    void *req, *data = buf + 4096, *none = NULL;
    size_t size = TOO_BIG;
    int tag = 0, rc;

    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 4096), *mi = drv_reg(l.recv, buf + 4096, 4096);
    for (int turn = 0; turn < 2; turn++, size = (1u << 30) + 1) {
        req = STALE;
        rc = abi_view.version >= 10 ? t10()->isend(l.send, buf, size, 0, mo, NULL, &req)
                                    : t9()->isend(l.send, buf, size, 0, mo, &req);
        NEED(rc == ABI_INVALID_ARGUMENT && req == NULL, "isend of %zu bytes says %d", size, rc);
        req = STALE;
        rc = abi_view.version >= 10 ? t10()->irecv(l.recv, 1, &data, &size, &tag, &mi, &none, &req)
                                    : t9()->irecv(l.recv, 1, &data, &size, &tag, &mi, &req);
        NEED(rc == ABI_INVALID_ARGUMENT && req == NULL, "irecv of %zu bytes says %d", size, rc);
    }
    drv_close(&l);
    drv_self_test();
}

/*
 * A receive whose completion NCCL does not need is completed like any other: no sooner than its
 * bytes are there, since what completes early here would be posted again with the old bytes under
 * way.
 */
static void optional_completion(void)
{
    enum { ROOM = 1 << 16 };
    char *buf = drv_map(ROOM);
    struct drv_link l;
    void *req;
    int size = -1;

    abi_view.optional = 1;
    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, ROOM);
    for (int i = 0; i < 20; i++) {
        int len = i % 4 == 3 ? 0 : 1000 + i * 3000;
        if (drv.side == 1) {
            memset(buf, 0, ROOM);
            req = drv_irecv1(l.recv, buf, ROOM, 0, mh);
            for (int k = 0; k < 2000; k++) {
                NEED(!drv_test(req, NULL), "done before anything was sent");
            }
        }
        drv_barrier();
        if (drv.side == 0) {
            drv_fill(buf, (size_t)len, (uint32_t)i);
            req = drv_isend(l.send, buf, len, 0, mh);
        }
        drv_wait(&req, 1, &size);
        NEED(size == len, "size %d of %d", size, len);
        if (drv.side == 1) {
            drv_check(buf, (size_t)len, (uint32_t)i, "message");
        }
    }
    drv_barrier();
    drv_close(&l);
}

/* Without its parents, and without NCCL_R2_PROFILER_EVENTS, the profiler hears nothing. */
static void profiler_handles(void)
{
    char *buf = drv_map(8192);
    struct drv_link l;
    void *req[2] = {NULL, NULL}, *data = buf + 4096;
    size_t room = 4096;
    int tag = 0, sizes[2];

    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 4096), *mi = drv_reg(l.recv, buf + 4096, 4096);
    drv_fill(buf, 500, 8);
    while (req[0] == NULL) {
        OK(t10()->irecv(l.recv, 1, &data, &room, &tag, &mi, NULL, &req[0]));
    }
    while (req[1] == NULL) {
        OK(t10()->isend(l.send, buf, 500, 0, mo, NULL, &req[1]));
    }
    drv_wait(req, 2, sizes);
    drv_check(data, 500, 8, "message");
    drv_close(&l);
    NEED(abi_view.profiled == 0, "the profiler was called %d times", abi_view.profiled);
}

/* Version 10: handles that say too little are passed over, whatever is asked for. */
static void profiler_passed_over(void)
{
    char *buf = drv_map(8192);
    struct drv_link l;
    void *req[2] = {NULL, NULL}, *data = buf + 4096, *bad = STALE;
    size_t room = 4096;
    int tag = 0, sizes[2];

    if (abi_view.version != 10) {
        return;
    }
    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 4096), *mi = drv_reg(l.recv, buf + 4096, 4096);
    while (req[0] == NULL) {
        OK(t10()->irecv(l.recv, 1, &data, &room, &tag, &mi, &bad, &req[0]));
    }
    while (req[1] == NULL) {
        OK(t10()->isend(l.send, buf, 500, 0, mo, STALE, &req[1]));
    }
    drv_wait(req, 2, sizes);
    drv_close(&l);
    NEED(abi_view.profiled == 0, "the profiler was called %d times", abi_view.profiled);
}

/* What the profiler keeps: an event for each step, by number of its parent. */
static struct {
    struct abi_event_ib data;
    int starts, stops;
} events[8];
static char parents[8];

static int keep_event(void **event, int type, void *phandle, int64_t plugin, void *data)
{
    size_t i = type == ABI_EVENT_START
                   ? (size_t)((char *)phandle - parents)
                   : (size_t)((char *)*event - (char *)events) / sizeof(events[0]);

    NEED(plugin == ABI_EVENT_IB, "of plugin %llx", (unsigned long long)plugin);
    NEED(i < 8, "an event of step %zu", i);
    if (type == ABI_EVENT_START) {
        events[i].starts++;
        memcpy(&events[i].data, data, sizeof(events[i].data));
        *event = &events[i];
    } else {
        NEED(type == ABI_EVENT_STOP, "type %d", type);
        events[i].stops++;
    }
    return ABI_SUCCESS;
}

/* Each message that has a parent is reported under it, whole, and ends before it is said to be
 * done. */
static void profiler_events(void)
{
    char *buf = drv_map(1 << 16);
    struct drv_link l;
    size_t room = 5000;
    int tag = 0, size = -1;

    abi_view.profiler = keep_event;
    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, 1 << 16);
    for (int i = 0; i < 8; i++) {
        void *req = NULL, *parent = i == 7 ? NULL : &parents[i], *data = buf;

        drv_fill(buf, drv.side ? 0 : 5000, (uint32_t)i);
        while (req == NULL && drv.side) {
            OK(t10()->irecv(l.recv, 1, &data, &room, &tag, &mh, &parent, &req));
        }
        while (req == NULL) {
            OK(t10()->isend(l.send, buf, 5000, 0, mh, parent, &req));
        }
        drv_wait(&req, 1, &size);
        NEED(events[i].starts == (i != 7) && events[i].stops == events[i].starts,
             "message %d: %d events, %d ended", i, events[i].starts, events[i].stops);
        NEED(i == 7 || (events[i].data.kind == 1 && events[i].data.device == 0 &&
                        events[i].data.length == 5000 && events[i].data.qp != 0),
             "message %d: kind %d, device %d, %llu bytes", i, events[i].data.kind,
             events[i].data.device, (unsigned long long)events[i].data.length);
        if (drv.side) {
            drv_check(buf, 5000, (uint32_t)i, "message");
        }
    }
    drv_barrier();
    drv_close(&l);
    NEED(abi_view.profiled == 14, "the profiler was called %d times", abi_view.profiled);
}

/* --- communicators --- */

static void *context_open(uint64_t id, int class)
{
    struct abi_config config = {.traffic_class = class};
    void *ctx = STALE;

    OK(t11()->init(&ctx, id, &config, drv_logger, NULL));
    NEED(ctx != NULL && ctx != STALE, "init gave no context");
    return ctx;
}

/* NCCL takes the context of a network for its own IB transport's, and reads and writes an int
 * there. */
static void context_scribble(void *ctx, int class)
{
    int32_t is;

    memcpy(&is, ctx, sizeof(is));
    NEED(is == class, "the context begins with %d, not with the traffic class %d", is, class);
    is = 4711;
    memcpy(ctx, &is, sizeof(is));
}

/* connect on a connection of its own; its result. */
static int context_connect(void *ctx)
{
    char handle[ABI_HANDLE_BYTES];
    void *listen = NULL, *comm = STALE;
    int rc;

    OK(t11()->listen(ctx, 0, handle, &listen));
    rc = t11()->connect(ctx, 0, handle, &comm, NULL);
    NEED(comm == NULL, "connect wrote %p", comm);
    OK(t11()->close_listen(listen));
    return rc;
}

static int threads_now(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    NEED(d != NULL, "/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void contexts(void)
{
    void *first = abi_view.ctx, *ctx[3];
    int threads;

    drv_self_test(); /* with the first registration each NIC has a thread for that */
    threads = threads_now();
    ctx[0] = context_open(1, 106);
    ctx[1] = context_open(1, ABI_CLASS_UNDEF); /* one id may come twice: two GPUs of a process */
    ctx[2] = context_open(3, 300);
    for (int i = 0; i < 3; i++) {
        NEED(ctx[i] != first && ctx[i] != ctx[(i + 1) % 3], "one context twice");
        context_scribble(ctx[i], i == 0 ? 106 : i == 1 ? ABI_CLASS_UNDEF : 300);
    }
    NEED(context_connect(ctx[2]) == ABI_INVALID_USAGE, "traffic class 300 was taken");
    NEED(strstr(drv_last_warn(), "trafficClass 300"), "the last WARN does not name it: %s",
         drv_last_warn());
    for (int i = 0; i < 2; i++) {
        NEED(context_connect(ctx[i]) == ABI_SUCCESS, "connect: %s", drv_last_warn());
        abi_view.ctx = ctx[i];
        drv_self_test();
    }
    NEED(threads_now() == threads, "%d threads became %d", threads, threads_now());
    OK(t11()->finalize(ctx[1]));
    NEED(t11()->finalize(ctx[1]) != ABI_SUCCESS, "finalized twice");
    OK(t11()->finalize(NULL)); /* NCCL up to 2.29.3, after an init that failed */
    abi_view.ctx = ctx[0];
    drv_self_test();
    /* NCCL 2.28.3 goes on with the context of a communicator that is gone, where others share its
     * proxy */
    abi_view.ctx = ctx[1];
    drv_self_test();
    OK(t11()->finalize(ctx[0]));
    OK(t11()->finalize(ctx[2]));
    OK(t11()->finalize(first));
    for (int i = 0; i < 8; i++) { /* what comes after it takes nothing from it */
        NEED(context_connect(ctx[2]) == ABI_INVALID_USAGE,
             "a finalized context has forgotten its class");
        abi_view.ctx = context_open(4, ABI_CLASS_UNDEF);
    }
    drv_self_test();
    NEED(threads_now() == threads, "%d threads became %d", threads, threads_now());
}

/* A job that makes and destroys communicators all its life. */
static void contexts_without_end(void)
{
    enum { KINDS = 400 };
    void *seen[KINDS], *ctx;
    int kinds = 0, k;

    for (int i = 0; i < 20000; i++) {
        ctx = context_open((uint64_t)i, i % 256);
        for (k = 0; k < kinds && seen[k] != ctx; k++) {
        }
        if (k == kinds) {
            NEED(kinds < KINDS, "%d contexts, and always new ones", i);
            seen[kinds++] = ctx;
        }
        context_scribble(ctx, i % 256);
        OK(t11()->finalize(ctx));
    }
    drv_self_test();
}

/* What NCCL leaves out, and what it gets wrong. */
static void context_arguments(void)
{
    char handle[ABI_HANDLE_BYTES];
    void *ctx = STALE, *comm = STALE;

    NEED(t11()->init(NULL, 1, NULL, drv_logger, NULL) != ABI_SUCCESS,
         "no room for the context, and success");
    OK(t11()->init(&ctx, 1, NULL, drv_logger, NULL));
    NEED(ctx != NULL && ctx != STALE && context_connect(ctx) == ABI_SUCCESS,
         "without a configuration");
    NEED(t11()->listen(NULL, 0, handle, &comm) != ABI_SUCCESS && comm == NULL,
         "listen without a context");
    comm = STALE;
    NEED(t11()->connect(NULL, 0, handle, &comm, NULL) != ABI_SUCCESS && comm == NULL,
         "connect without a context");
    OK(t11()->finalize(ctx));
}

/* init refuses, finalize follows all the same (NCCL up to 2.29.3); and once more for the next
 * communicator. */
static void init_refused(void)
{
    struct abi_config config = {.traffic_class = ABI_CLASS_UNDEF};

    setenv("NCCL_IB_DISABLE", "1", 1);
    drv_load();
    for (int i = 0; i < 3; i++) {
        void *ctx = STALE;
        NEED(t11()->init(&ctx, 1, &config, drv_logger, NULL) == ABI_SYSTEM_ERROR, "init took it");
        NEED(ctx == NULL, "a context from an init that failed");
        OK(t11()->finalize(ctx));
    }
}

/* The class of a communicator: its traffic flows, one that cannot be is an error of connect and of
 * nothing before. */
static void traffic_class(void)
{
    char handle[ABI_HANDLE_BYTES];
    void *listen = NULL, *comm = STALE;
    int rc;

    for (int class = 0; class < 256; class += 51) {
        abi_view.traffic_class = class;
        if (abi_view.version >= 11) {
            drv_init();
        }
        drv_self_test();
    }
    abi_view.traffic_class = 256;
    drv_init();
    OK(drv.net->listen(0, handle, &listen));
    rc = drv.net->connect(0, handle, &comm, NULL);
    NEED(rc == ABI_INVALID_USAGE && comm == NULL, "connect with class 256: %d", rc);
    NEED(strstr(drv_last_warn(), "trafficClass 256"), "the last WARN does not name it: %s",
         drv_last_warn());
    OK(drv.net->close_listen(listen));
}

/* --- several tables --- */

/* One process, all tables: what one user finalizes another one still has. */
static void all_tables(void)
{
    const int newest = abi_view.version;
    int ndev = drv.ndev, threads;
    struct drv_link l;
    char *buf = drv_map(8192);
    void *req[2];

    drv_self_test(); /* as above */
    threads = threads_now();
    abi_view.optional = 0;
    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 4096), *mi = drv_reg(l.recv, buf + 4096, 4096);
    for (int version = ABI_VIEW_OLDEST; version <= ABI_VIEW_NEWEST; version++) {
        drv_table_use(version);
        drv_init();
        NEED(drv.ndev == ndev, "version %d has %d devices, version %d %d", version, drv.ndev,
             newest, ndev);
        drv_self_test();
        OK(abi_view_finalize());
        /* a connection of the first table, by the calls of this one */
        drv_fill(buf, 700, (uint32_t)version);
        req[0] = drv_irecv1(l.recv, buf + 4096, 4096, 0, mi);
        req[1] = drv_isend(l.send, buf, 700, 0, mo);
        drv_wait(req, 2, NULL);
        drv_check(buf + 4096, 700, (uint32_t)version, "message");
    }
    NEED(threads_now() == threads, "%d threads became %d", threads, threads_now());
    drv_close(&l);
}

/* Two hosts whose NCCLs are not of one age: this version at one end, each other one at the other.
 */
static void versions_meet(void)
{
    const int version = abi_view.version;
    char *buf = drv_map(1 << 20);

    for (int other = ABI_VIEW_OLDEST; other <= ABI_VIEW_NEWEST; other++) {
        struct drv_link l;
        void *req[2];
        int sizes[2];
        drv_table_use(drv.side ? other : version);
        drv_init();
        drv_connect(&l, other % drv.ndev);
        void *mo = drv_reg(l.send, buf, 1 << 19), *mi = drv_reg(l.recv, buf + (1 << 19), 1 << 19);
        drv_fill(buf, 300000, (uint32_t)(other * 2 + drv.side));
        req[0] = drv_irecv1(l.recv, buf + (1 << 19), 1 << 19, 0, mi);
        req[1] = drv_isend(l.send, buf, 300000, 0, mo);
        drv_wait(req, 2, sizes);
        NEED(sizes[0] == 300000 && sizes[1] == 300000, "sizes %d, %d", sizes[0], sizes[1]);
        drv_check(buf + (1 << 19), 300000, (uint32_t)(other * 2 + 1 - drv.side), "message");
        OK(drv.net->dereg_mr(l.send, mo));
        OK(drv.net->dereg_mr(l.recv, mi));
        drv_barrier();
        drv_close(&l);
        OK(abi_view_finalize());
    }
}

const struct drv_case drv_cases_version[] = {
    {"version_properties", 1, 30, properties_of_the_version, NULL, 9},
    {"version_flush", 1, 30, flush_is_asked_for, "NCCL_R2_FLUSH=always", 9},
    {"version_rails", 1, 30, rails_and_planes, "NCCL_IB_HCA==fab0:1:4:1,fab1:1:5", 12},
    {"sizes_beyond_int", 1, 30, sizes_beyond_int, NULL, 9},
    {"optional_completion", 2, 60, optional_completion, NULL, 9},
    {"profiler_handles", 1, 30, profiler_handles, NULL, 10},
    {"profiler_passed_over", 1, 30, profiler_passed_over, "NCCL_R2_PROFILER_EVENTS=1", 10},
    {"profiler_events", 2, 30, profiler_events, "NCCL_R2_PROFILER_EVENTS=1", 11},
    {"traffic_class", 1, 60, traffic_class, NULL, 10},
    {"contexts", 1, 60, contexts, NULL, 11},
    {"contexts_without_end", 1, 60, contexts_without_end, NULL, 11},
    {"context_arguments", 1, 30, context_arguments, NULL, 11},
    {"init_refused", 1, 30, init_refused, "DRV_NO_INIT=1", 11},
    {"all_tables", 1, 60, all_tables, NULL, 0},
    {"versions_meet", 2, 60, versions_meet, NULL, 0},
    {0},
};
