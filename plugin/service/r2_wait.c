#include "r2_wait.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "admin/r2_host_share.h"
#include "base/r2_time.h"
#include "probe/health/r2_inband.h"

#define LONGEST (3600 * R2_NS_PER_S)

/* The descriptors, in this order: three of our own, devices' events, messages over NICs. */
enum { WAKE, CHANNEL, REGISTRY, OWN };

struct waiting {
    struct pollfd fd[OWN + 2 * IB_MAX_NICS];
    uint8_t of[OWN + 2 * IB_MAX_NICS]; /* which device, which NIC */
    int events, all;                   /* messages begin with @events; there are @all */
};

static void waiting_fill(struct r2_inst *inst, struct waiting *w)
{
    int n = OWN;

    w->fd[WAKE] = (struct pollfd){.fd = inst->service.wake_fd, .events = POLLIN};
    w->fd[CHANNEL] = (struct pollfd){.fd = inst->oob->ops->fd(inst->oob), .events = POLLIN};
    w->fd[REGISTRY] =
        (struct pollfd){.fd = inst->share.registry ? r2_host_registry_fd(inst->share.registry) : -1,
                        .events = POLLIN};
    for (int i = 0; i < inst->nics.count; i++) {
        const struct ib_nic *nic = &inst->nics.nic[i];
        enum ib_nic_state s = ib_nic_state_get(nic);

        /* one descriptor per device; a dead device's may be readable for ever */
        if (s != IB_NIC_FATAL && s != IB_NIC_GONE &&
            (i == 0 || inst->nics.nic[i - 1].ctx != nic->ctx)) {
            w->fd[n] = (struct pollfd){.fd = nic->ctx->async_fd, .events = POLLIN};
            w->of[n++] = (uint8_t)nic->device_index;
        }
    }
    w->events = n;
    w->all = n + r2_inband_fds(inst, w->fd + n, w->of + n);
}

/* Whatever a descriptor reports, an error included, is for who reads it. What comes from here on
 * makes the descriptor readable for the next wait. */
static uint32_t silent(const struct waiting *w, int from, int to)
{
    uint32_t none = 0;

    for (int i = from; i < to; i++) {
        none |= w->fd[i].fd >= 0 && w->fd[i].revents == 0 ? 1u << w->of[i] : 0;
    }
    return none;
}

void r2_wait(struct r2_inst *inst, uint64_t next)
{
    struct waiting w;
    uint64_t now, wait, sink;
    struct timespec ts;

    waiting_fill(inst, &w);
    now = r2_now(inst);
    wait = r2_earlier(r2_elapsed(next, now), LONGEST);
    ts = (struct timespec){.tv_sec = (time_t)(wait / R2_NS_PER_S),
                           .tv_nsec = (long)(wait % R2_NS_PER_S)};
    inst->service.no_event = inst->service.no_message = 0;
    if (ppoll(w.fd, (nfds_t)w.all, &ts, NULL) < 0) {
        return; /* what it has left in them is not said */
    }
    inst->service.no_event = silent(&w, OWN, w.events);
    inst->service.no_message = silent(&w, w.events, w.all);
    if (w.fd[WAKE].revents & POLLIN) {
        (void)!read(inst->service.wake_fd, &sink, sizeof(sink)); /* takes all that was written */
    }
    if (w.fd[REGISTRY].revents & POLLIN) {
        r2_host_share_rung(inst);
    }
}
