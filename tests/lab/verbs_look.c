/* What verbs tells or answers apart from completions. */
#include "tests/lab/verbs_watch.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define PORT_ERRNO 256u

static uint32_t port_get(struct vw *w)
{
    struct ibv_port_attr a;
    int rc = ibv_query_port(w->ctx, (uint8_t)w->o.ib_port, &a);

    return rc ? PORT_ERRNO + (uint32_t)(rc < 0 ? errno : rc) : a.state;
}

/* State of the queue pair as the device has it; 256 + errno when it does not say. */
static uint32_t qp_get(struct vw *w)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr a;
    int rc = ibv_query_qp(w->qp, &a, IBV_QP_STATE, &init);

    return rc ? PORT_ERRNO + (uint32_t)rc : a.qp_state;
}

static uint32_t gid_get(struct vw *w, bool *same)
{
    union ibv_gid g;
    int rc = ibv_query_gid(w->ctx, (uint8_t)w->o.ib_port, w->o.gid_index, &g);

    *same = !rc && memcmp(&g, &w->gid, sizeof g) == 0;
    return rc ? (uint32_t)(rc < 0 ? errno : rc) : 0;
}

/* By name: a device that comes back is another one, and may have another place in the list. */
static bool device_listed(struct vw *w)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    bool found = false;

    for (int i = 0; list && list[i] && !found; i++) {
        found = strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(w->ctx->device)) == 0;
    }
    if (list) {
        ibv_free_device_list(list);
    }
    return found;
}

void vw_look_init(struct vw *w)
{
    w->port_state = port_get(w);
    w->gid_errno = gid_get(w, &w->gid_same);
    w->qp_state = qp_get(w);
    w->listed = device_listed(w);
    w->list_next = vw_now() + VW_LIST_NS;
}

void vw_events(struct vw *w)
{
    struct pollfd p = {.fd = w->ctx->async_fd, .events = POLLIN};
    struct ibv_async_event ev;

    while (poll(&p, 1, 0) == 1 && p.revents & POLLIN && ibv_get_async_event(w->ctx, &ev) == 0) {
        vw_note(w, VW_EVENT, "%s", vw_event_name((int)ev.event_type));
        ibv_ack_async_event(&ev);
    }
}

static void port_note(struct vw *w, uint32_t state)
{
    static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};

    if (state >= PORT_ERRNO) {
        vw_note(w, VW_PORT, "query_port %s", vw_errno_name((int)(state - PORT_ERRNO)));
    } else {
        vw_note(w, VW_PORT, "%s", state < sizeof names / sizeof *names ? names[state] : "?");
    }
}

void vw_look(struct vw *w, uint64_t now)
{
    uint32_t port = port_get(w), qp = qp_get(w);
    bool same;
    uint32_t gid = gid_get(w, &same);

    if (port != w->port_state) {
        port_note(w, port);
    }
    if (gid != w->gid_errno && gid) {
        vw_note(w, VW_GID, "query_gid %s", vw_errno_name((int)gid));
    } else if (same != w->gid_same) {
        vw_note(w, VW_GID, same ? "back" : "changed");
    }
    if (qp != w->qp_state && qp >= PORT_ERRNO) {
        vw_note(w, VW_QP, "query_qp %s", vw_errno_name((int)(qp - PORT_ERRNO)));
    } else if (qp != w->qp_state) {
        vw_note(w, VW_QP, "%s", vw_state_name((int)qp));
    }
    w->port_state = port;
    w->gid_errno = gid;
    w->gid_same = same;
    w->qp_state = qp;
    if (now >= w->list_next) {
        bool listed = device_listed(w);

        if (listed != w->listed) {
            vw_note(w, VW_DEVICE, listed ? "listed again" : "not listed");
        }
        w->listed = listed;
        w->list_next = now + VW_LIST_NS;
    }
}
