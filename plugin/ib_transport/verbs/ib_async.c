#include "ib_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"

/* One turn takes no more than this from one device: a storm of events must not keep the service
 * thread from the other devices. */
#define EVENTS_PER_TURN 256
#define LOOKS_BAD       5 /* then it is said that a NIC goes on failing */

struct async {
    struct ib_nics *nics;
    int device;
    void (*sink)(void *arg, const struct ib_fact *fact);
    void *arg;
};

static void fact_emit(const struct async *a, enum ib_fact_kind kind, int nic, uint64_t context)
{
    struct ib_fact f = {.kind = kind, .nic = nic, .context = context};

    a->sink(a->arg, &f);
}

/* The device is lost to us. Says so once per NIC and state. */
static void device_lost(const struct async *a, enum ib_nic_state to, const char *why)
{
    for (int i = 0; i < a->nics->count; i++) {
        struct ib_nic *nic = &a->nics->nic[i];
        int was_fatal = ib_nic_state_get(nic) == IB_NIC_FATAL;

        if (nic->device_index == a->device && ib_nic_state_change(a->nics, i, to, why)) {
            fact_emit(a, was_fatal ? IB_FACT_REMOVED : IB_FACT_DEVICE_FATAL, i, 0);
        }
    }
}

/* The first NIC of the device: queue pairs and queues belong to a device, their owner knows the
 * port by its id. */
static int device_nic(const struct async *a)
{
    int i = 0;

    while (i < a->nics->count - 1 && a->nics->nic[i].device_index != a->device) {
        i++;
    }
    return i;
}

/* The kernel says that the device is lost: removed already, or about to be, or its driver has given
 * it up. */
static void device_given_up(const struct async *a, const char *why)
{
    device_lost(a, ib_nic_is_gone(a->nics, device_nic(a)) ? IB_NIC_GONE : IB_NIC_FATAL, why);
}

/*
 * Reading a port failed. ENODEV: its network interface has left for good. EIO is what the kernel
 * answers for a device that it has taken away, and also what mlx5 makes of a command that its
 * firmware refused once; ENXIO, ENOLINK: its commands are held back, as around a reset. Nothing in
 * them is final, so the NIC is down until a later check finds it better, or the kernel says what
 * they were about: an event, or the device leaves sysfs.
 */
static void refresh_failed(const struct async *a, int nic, int err)
{
    struct ib_nic *n = &a->nics->nic[nic];
    char why[128];

    snprintf(why, sizeof(why), "reading the port: %s", strerror(err));
    if (err == ENODEV || ib_nic_is_gone(a->nics, nic)) {
        device_given_up(a, why);
    } else if (err == EIO || err == ENXIO || err == ENOLINK) {
        n->failing += n->failing < UINT32_MAX;
        if (ib_nic_state_change(a->nics, nic, IB_NIC_DOWN, why)) {
            fact_emit(a, IB_FACT_DEVICE_FAILS, nic, 0);
        } else if (n->failing == LOOKS_BAD) {
            R2_WARN("NIC %s: %u checks in a row failed: %s; it is not used until it answers",
                    n->name, n->failing, strerror(err));
        }
    } else {
        R2_INFO("NIC %s: %s", n->name, why);
    }
}

/*
 * The port was read again. The state follows what was read, not what the event says: of a quick
 * down and up both events may have waited here, and the check shows what holds now. 0 when the
 * address is good.
 */
static int port_took(const struct async *a, int nic, int rc, const char *why)
{
    if (rc == 0 || rc == ENETDOWN || rc == EADDRNOTAVAIL) {
        a->nics->nic[nic].failing = 0;
    }
    if (rc == 0 && ib_nic_state_change(a->nics, nic, IB_NIC_UP, why)) {
        fact_emit(a, IB_FACT_PORT_UP, nic, 0);
    } else if (rc == ENETDOWN ||
               rc == EADDRNOTAVAIL) { /* no address that the options allow: as good as down */
        if (ib_nic_state_change(a->nics, nic, IB_NIC_DOWN, why)) {
            fact_emit(a, IB_FACT_PORT_DOWN, nic, 0);
        }
    } else if (rc != 0) {
        refresh_failed(a, nic, rc);
    }
    return rc;
}

static void port_event(const struct async *a, int nic, enum ibv_event_type type, const char *why)
{
    enum ib_nic_state s = ib_nic_state_get(&a->nics->nic[nic]);

    if (s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return;
    }
    switch (type) {
    case IBV_EVENT_PORT_ERR:
        /* no call on a port in trouble: the event is enough, and others wait for this thread */
        ib_nic_state_change(a->nics, nic, IB_NIC_DOWN, why);
        fact_emit(a, IB_FACT_PORT_DOWN, nic, 0);
        break;
    case IBV_EVENT_PORT_ACTIVE:
        fact_emit(a, IB_FACT_REFRESH, nic, IB_REFRESH_ACTIVE);
        break;
    default:
        fact_emit(a, IB_FACT_REFRESH, nic, IB_REFRESH_ADDR);
        break;
    }
}

static void port_events(const struct async *a, const struct ibv_async_event *ev, const char *why)
{
    for (int i = 0; i < a->nics->count; i++) {
        struct ib_nic *nic = &a->nics->nic[i];
        if (nic->device_index == a->device && nic->port == ev->element.port_num) {
            ib_nic_addr_request(nic);
            port_event(a, i, ev->event_type, why);
        }
    }
}

static void event_handle(const struct async *a, const struct ibv_async_event *ev)
{
    const char *why = a->nics->v->event_type_str(ev->event_type);

    switch (ev->event_type) {
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        port_events(a, ev, why);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        device_given_up(a, why);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
        fact_emit(a, IB_FACT_QP_FATAL, device_nic(a), (uintptr_t)ev->element.qp->qp_context);
        break;
    case IBV_EVENT_CQ_ERR:
        fact_emit(a, IB_FACT_CQ_ERR, device_nic(a), (uintptr_t)ev->element.cq->cq_context);
        break;
    default:
        break; /* milestones of queue pairs and shared queues: nothing that we wait for */
    }
}

/* Acknowledged last: until then the object of the event cannot be destroyed under the sink's hands.
 */
static void device_progress(const struct async *a)
{
    struct ibv_async_event ev;
    int n = 0;

    while (n < EVENTS_PER_TURN) {
        errno = 0;
        if (a->nics->v->get_async_event(a->nics->device_ctx[a->device], &ev) == 0) {
            event_handle(a, &ev);
            a->nics->v->ack_async_event(&ev);
            n++;
        } else if (errno == ENODEV || errno == EIO) {
            device_given_up(a, strerror(errno)); /* the kernel says that of a device that it has
                                                    taken away, and of no other */
            return;
        } else if (errno != EINTR) {
            return; /* EAGAIN: nothing there */
        }
    }
}

_Static_assert(IB_MAX_NICS <= 32, "a bit for each device");

void ib_async_progress(struct ib_nics *nics, uint32_t none,
                       void (*sink)(void *arg, const struct ib_fact *fact), void *arg)
{
    struct async a = {.nics = nics, .sink = sink, .arg = arg};

    for (a.device = 0; a.device < nics->device_count; a.device++) {
        if (!(none >> a.device & 1)) {
            device_progress(&a);
        }
    }
}

static int device_in_doubt(const struct async *a)
{
    for (int i = 0; i < a->nics->count; i++) {
        const struct ib_nic *nic = &a->nics->nic[i];
        enum ib_nic_state s = ib_nic_state_get(nic);

        if (nic->device_index == a->device &&
            (s == IB_NIC_FATAL || (s == IB_NIC_DOWN && nic->failing))) {
            return 1;
        }
    }
    return 0;
}

int ib_async_removals(struct ib_nics *nics, void (*sink)(void *arg, const struct ib_fact *fact),
                      void *arg)
{
    struct async a = {.nics = nics, .sink = sink, .arg = arg};
    int left = 0;

    for (a.device = 0; a.device < nics->device_count; a.device++) {
        if (!device_in_doubt(&a)) {
            continue;
        }
        if (ib_nic_is_gone(nics, device_nic(&a))) {
            device_lost(&a, IB_NIC_GONE, "the device has left sysfs");
        } else {
            left++;
        }
    }
    return left;
}

void ib_async_refreshed(struct ib_nics *nics, int nic, int rc, unsigned requested,
                        void (*sink)(void *arg, const struct ib_fact *fact), void *arg)
{
    struct async a = {
        .nics = nics, .device = nics->nic[nic].device_index, .sink = sink, .arg = arg};
    enum ib_nic_state s = ib_nic_state_get(&nics->nic[nic]);

    if (s == IB_NIC_FATAL || s == IB_NIC_GONE ||
        port_took(&a, nic, rc, requested ? "found after an event" : "found when looking") != 0) {
        return;
    }
    /* said even if nothing changed for us: whoever waits for the port may have found it dead
     * without us */
    if ((requested & IB_REFRESH_ACTIVE) && s == IB_NIC_UP) {
        fact_emit(&a, IB_FACT_PORT_UP, nic, 0);
    }
    if (requested & IB_REFRESH_ADDR) {
        fact_emit(&a, IB_FACT_ADDR_CHANGE, nic, 0);
    }
}
