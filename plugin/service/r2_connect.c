/* The network API over instances and connections: devices, listen, connect, accept. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "ib_transport/ib_rc.h"
#include "r2_close.h"
#include "r2_conn.h"
#include "r2_setup.h"

#define HANDLE_MAGIC 0x3272636eu /* "ncr2" */
#define HANDLE_VERSION                                                                             \
    FO_PROTO_VERSION /* who has made the handle speaks that version: told before anything is       \
                        dialled */

/* What travels through NCCL's bootstrap; at most 128 bytes. Little endian. The last word is ours on
 * the connecting side. */
struct r2_handle {
    uint32_t magic;
    uint16_t version, size;
    struct r2_oob_name name;
    uint32_t listen;
    uint16_t dev, reserved;
    uint32_t check; /* FNV-1a over the bytes before it */
    uint32_t token; /* 0, or the connection that connect() has begun for this handle */
};
_Static_assert(sizeof(struct r2_handle) <= R2_NET_HANDLE_SIZE, "handle");
_Static_assert(sizeof(struct r2_oob_name) == 56, "name in the handle");

static uint32_t handle_check(const struct r2_handle *h)
{
    return r2_fnv_add(R2_FNV_BASIS, h, offsetof(struct r2_handle, check));
}

/* --- devices --- */

int r2_net_devices(struct r2_inst *inst)
{
    int rdma = inst->nics.count - inst->nics.last_count;

    return rdma == 0 && strcmp(inst->cfg.last_resort, "auto") != 0 ? inst->nics.last_count : rdma;
}

static int16_t user_number(int n)
{
    return n >= 0 && n <= INT16_MAX ? (int16_t)n : -1;
}

enum r2_status r2_net_props(struct r2_inst *inst, int dev, struct r2_net_props *out)
{
    const struct ib_nic *nic;

    if (dev < 0 || dev >= r2_net_devices(inst)) {
        R2_WARN("no device %d, there are %d", dev, r2_net_devices(inst));
        return R2_ERR_ARG;
    }
    nic = &inst->nics.nic[dev];
    *out = (struct r2_net_props){.name = nic->name,
                                 .pci_path = nic->pci_path,
                                 .guid = nic->guid,
                                 .ptr_support = nic->ptr_support,
                                 .speed_mbps = nic->speed_mbps,
                                 .port = nic->port,
                                 .max_comms = 65536,
                                 .force_flush = inst->cfg.flush == R2_FLUSH_ALWAYS,
                                 .rail = user_number(nic->hca.rail),
                                 .plane = user_number(nic->hca.plane)};
    return R2_OK;
}

/* --- listen, connect, accept --- */

enum r2_status r2_net_listen(struct r2_inst *inst, int dev, void *handle, struct r2_listen **out)
{
    struct r2_handle h = {.magic = HANDLE_MAGIC, .version = HANDLE_VERSION, .size = sizeof(h)};
    struct r2_listen *l;

    *out = NULL;
    if (inst->cfg.error[0]) {
        char line[PROBE_LINE_SIZE];

        probe_line_full(line, &(struct probe_line){.code = PROBE_CODE_C01,
                                                   .host = inst->self.host,
                                                   .job = inst->self.job,
                                                   .how = "option",
                                                   .fate = PROBE_FATE_ENDS});
        R2_WARN("%s", line);
        R2_WARN("%s", inst->cfg.error); /* last: frameworks show that one */
        r2_log_flush();
        return R2_ERR_CONFIG;
    }
    if (dev < 0 || dev >= r2_net_devices(inst)) {
        R2_WARN("listen on device %d, there are %d", dev, r2_net_devices(inst));
        r2_log_flush();
        return R2_ERR_ARG;
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return R2_ERR_SYSTEM;
    }
    l->inst = inst;
    l->dev = dev;
    r2_listen_enter(l);
    inst->oob->ops->name_get(inst->oob, &h.name);
    h.listen = l->id;
    h.dev = (uint16_t)dev;
    h.check = handle_check(&h);
    memset(handle, 0, R2_NET_HANDLE_SIZE);
    memcpy(handle, &h, sizeof(h));
    *out = l;
    return R2_OK;
}

static bool handle_is_ours(const struct r2_handle *h)
{
    return h->magic == HANDLE_MAGIC && h->version == HANDLE_VERSION && h->size == sizeof(*h) &&
           h->check == handle_check(h);
}

static void handle_refuse(const struct r2_handle *h)
{
    if (h->magic == HANDLE_MAGIC &&
        h->version != HANDLE_VERSION) { /* which has the same place in every version */
        R2_WARN(
            "the peer's nccl-net-r2 speaks version %u, this process version %d: all processes of a job need the same plugin",
            h->version, HANDLE_VERSION);
    } else {
        R2_WARN(
            "connect with a handle that is not of this plugin (magic %08x, version %u), or was damaged",
            h->magic, h->version);
    }
}

/* Whether device @dev can have the class that the communicator asks for; not asked where the
 * environment has a say. */
static enum r2_status check_class(struct r2_inst *inst, int dev, int class)
{
    struct ib_addr at;
    int ib, max;

    ib_nic_addr_get(&inst->nics, dev, &at);
    ib = at.link_layer == IBV_LINK_LAYER_INFINIBAND;
    max = ib ? IB_SL_MAX : UINT8_MAX;
    if (class == R2_NET_NO_CLASS || (ib ? inst->cfg.ib_sl : inst->cfg.ib_tc) >= 0 ||
        (class >= 0 && class <= max)) {
        return R2_OK;
    }
    R2_WARN(
        "trafficClass %d of the communicator cannot be obeyed: expected 0 to %d, a %s of NIC %s",
        class, max, ib ? "service level" : "traffic class", inst->nics.nic[dev].name);
    return R2_ERR_CONFIG;
}

static enum r2_status connect_begin(struct r2_inst *inst, int dev, int class, struct r2_handle *h)
{
    struct r2_comm *c;
    enum r2_status status;

    if (!handle_is_ours(h)) {
        handle_refuse(h);
        return R2_ERR_ARG;
    }
    if (dev < 0 || dev >= r2_net_devices(inst)) {
        R2_WARN("connect from device %d, there are %d", dev, r2_net_devices(inst));
        return R2_ERR_ARG;
    }
    status = check_class(inst, dev, class);
    if (status != R2_OK) {
        return status;
    }
    c = r2_comm_alloc(inst, 1, dev);
    if (c == NULL) {
        return R2_ERR_SYSTEM;
    }
    c->conn.traffic_class = class >= 0 && class <= UINT8_MAX ? (uint8_t) class : 0;
    c->start->peer_name = h->name;
    c->start->listen_id = h->listen;
    c->start->since = r2_now(inst);
    c->repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    h->token = c->id;
    r2_comm_kick(c);
    return R2_OK;
}

/*
 * The attempt that @h names, and how far its set-up is. Not one that was handed out already, which
 * may be closed, and freed at any moment. One whose set-up is over is handed out with that, and
 * stays; another one may be looked at under the lock alone.
 */
static struct r2_comm *attempt_take(struct r2_inst *inst, int dev, const struct r2_handle *h,
                                    int *setup)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    for (c = inst->comms.bucket[h->token % R2_COMM_BUCKETS]; c && c->id != h->token;
         c = c->list.hash_next) {
    }
    if (c && (!c->is_send || c->start->given || c->start->listen_id != h->listen || c->dev != dev ||
              memcmp(&c->start->peer_name, &h->name, sizeof(h->name)) != 0)) {
        c = NULL;
    }
    if (c) {
        *setup =
            atomic_load_explicit(&c->state.setup, memory_order_acquire); /* pairs with setup_move */
        c->start->given = *setup >= R2_SETUP_DONE;
    }
    pthread_mutex_unlock(&inst->lock);
    return c;
}

enum r2_status r2_net_connect_class(struct r2_inst *inst, int dev, int class, void *handle,
                                    struct r2_comm **out)
{
    struct r2_handle h;
    struct r2_comm *c;
    enum r2_status status = R2_OK;
    int setup = R2_SETUP_NEW;

    *out = NULL;
    memcpy(&h, handle, sizeof(h));
    if (h.token == 0) {
        status = connect_begin(inst, dev, class, &h);
        memcpy(handle, &h, sizeof(h));
        if (status != R2_OK) {
            r2_log_flush();
        }
        return status;
    }
    c = handle_is_ours(&h) ? attempt_take(inst, dev, &h, &setup) : NULL;
    if (c == NULL) {
        R2_WARN("connect with a handle of another attempt");
        r2_log_flush();
        return R2_ERR_ARG;
    }
    switch (setup) {
    case R2_SETUP_DONE:
        *out = c;
        return R2_OK;
    case R2_SETUP_FAILED:
        status = c->fo.error;
        if (c->fo.cause.code != PROBE_CODE_NONE) {
            r2_comm_report_error(c); /* also what was found */
        }
        r2_gate_visit(&c->gate); /* keeps the comm until the last word about it is said */
        r2_close_move(c, R2_CLOSE_DESTROY);
        r2_comm_kick(c);
        r2_gate_unvisit(&c->gate);
        r2_log_flush();
        return status;
    default:
        return R2_OK;
    }
}

enum r2_status r2_net_connect(struct r2_inst *inst, int dev, void *handle, struct r2_comm **out)
{
    return r2_net_connect_class(inst, dev, R2_NET_NO_CLASS, handle, out);
}

enum r2_status r2_net_accept(struct r2_listen *l, struct r2_comm **out)
{
    struct r2_inst *inst = l->inst;
    int failed;

    pthread_mutex_lock(&inst->lock);
    *out = l->ready_head;
    if (*out) {
        l->ready_head = (*out)->list.accept_next;
        if (l->ready_head == NULL) {
            l->ready_tail = NULL;
        }
    }
    failed = *out == NULL && l->error[0] != 0; /* written once, under the lock */
    pthread_mutex_unlock(&inst->lock);
    if (failed) {
        R2_WARN("accept on device %d: %s", l->dev, l->error);
        r2_log_flush();
        return R2_ERR_COMM;
    }
    return R2_OK;
}

void r2_net_close_listen(struct r2_listen *l)
{
    struct r2_comm *c, *next;

    if (l == NULL) {
        return;
    }
    r2_listen_unlink(l);
    for (c = l->ready_head; c; c = next) {
        next = c->list.accept_next;
        r2_net_close(c);
    }
    free(l);
}
