#include "tests/support/fake_verbs.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake_dev fake_dev[FAKE_DEVS];
int fake_dev_count;
int fake_list_errno;
int fake_dmabuf_errno;

static atomic_uint next_key = 1;
static char tree[PATH_MAX];

void fake_reset(void)
{
    for (int i = 0; i < fake_dev_count; i++) {
        if (fake_dev[i].event_fd > 0) {
            close(fake_dev[i].event_fd);
        }
    }
    memset(fake_dev, 0, sizeof(fake_dev));
    fake_dev_count = 0;
    fake_list_errno = 0;
    fake_dmabuf_errno = EOPNOTSUPP;
}

static void gid_set(union ibv_gid *g, int ipv4, int n)
{
    memset(g, 0, sizeof(*g));
    if (ipv4) {
        g->raw[10] = g->raw[11] = 0xff;
        g->raw[12] = 10;
    } else {
        g->raw[0] = 0xfe;
        g->raw[1] = 0x80;
    }
    g->raw[15] = (uint8_t)(n + 1);
}

struct fake_dev *fake_add(const char *name)
{
    struct fake_dev *d = &fake_dev[fake_dev_count];
    struct fake_port *p = &d->port[1];

    snprintf(d->dev.name, sizeof(d->dev.name), "%s", name);
    snprintf(d->dev.ibdev_path, sizeof(d->dev.ibdev_path), "/nonexistent/%s", name);
    d->guid = 0x1000u + (unsigned)fake_dev_count;
    d->ports = 1;
    p->attr.state = IBV_PORT_ACTIVE;
    p->attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    p->attr.active_speed = 32;
    p->attr.active_width = 2;
    p->attr.active_mtu = IBV_MTU_4096;
    p->attr.gid_tbl_len = 4;
    p->attr.max_msg_sz = 1u << 30;
    for (int i = 0; i < 4; i++) {
        gid_set(&p->gid[i], i >= 2, fake_dev_count);
        p->version[i] = i % 2 ? 2 : 1;
    }
    d->port[2] = *p;
    fake_dev_count++;
    return d;
}

static struct fake_dev *of_ctx(struct ibv_context *ctx)
{
    return (struct fake_dev *)ctx->device;
}

static struct ibv_device **get_device_list(int *num)
{
    struct ibv_device **list;

    if (fake_list_errno) {
        errno = fake_list_errno;
        return NULL;
    }
    list = calloc((size_t)fake_dev_count + 1, sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    for (int i = 0; i < fake_dev_count; i++) {
        list[i] = &fake_dev[i].dev;
    }
    *num = fake_dev_count;
    return list;
}

static void free_device_list(struct ibv_device **list)
{
    free(list);
}

static const char *get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

static uint64_t get_device_guid(struct ibv_device *dev)
{
    return htobe64(((struct fake_dev *)dev)->guid);
}

static struct ibv_context *open_device(struct ibv_device *dev)
{
    struct fake_dev *d = (struct fake_dev *)dev;
    int fds[2];

    if (d->open_errno) {
        errno = d->open_errno;
        return NULL;
    }
    if (pipe(fds) != 0) {
        return NULL;
    }
    d->ctx.device = dev;
    d->ctx.async_fd = fds[0];
    d->event_fd = fds[1];
    d->opened++;
    return &d->ctx;
}

static int close_device(struct ibv_context *ctx)
{
    struct fake_dev *d = of_ctx(ctx);

    assert(d->pds == 0);
    close(ctx->async_fd);
    close(d->event_fd);
    d->event_fd = 0;
    d->opened--;
    return 0;
}

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    struct fake_dev *d = of_ctx(ctx);

    memset(attr, 0, sizeof(*attr));
    attr->phys_port_cnt = (uint8_t)d->ports;
    strcpy(attr->fw_ver, "28.39.1002");
    attr->max_qp_wr = 1024;
    attr->max_cqe = 4096;
    attr->max_sge = 16;
    return d->query_errno;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    struct fake_port *p = &of_ctx(ctx)->port[port];

    *attr = p->attr;
    return p->query_errno;
}

static uint32_t query_port_speed_ex(struct ibv_context *ctx, uint8_t port)
{
    return of_ctx(ctx)->port[port].speed_ex;
}

static int query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
    struct fake_port *p = &of_ctx(ctx)->port[port];

    if (index < 0 || index >= p->attr.gid_tbl_len) {
        errno = EINVAL;
        return -1; /* the old convention, on purpose */
    }
    *gid = p->gid[index];
    return 0;
}

static int query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct fake_port *p = &of_ctx(ctx)->port[port];

    if (p->version[index] == 0) {
        return ENODATA;
    }
    memset(entry, 0, size);
    entry->gid = p->gid[index];
    entry->gid_type = p->version[index] == 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    return 0;
}

static int get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    return read(ctx->async_fd, ev, sizeof(*ev)) == (ssize_t)sizeof(*ev) ? 0 : -1;
}

/* The event's element is the only way back to the device for an acknowledgement: a test has few
 * devices, so each counts its own. */
static void ack_async_event(struct ibv_async_event *ev)
{
    for (int i = 0; i < fake_dev_count; i++) {
        fake_dev[i].acks++;
    }
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
    struct fake_dev *d = of_ctx(ctx);

    if (d->pd_errno) {
        errno = d->pd_errno;
        return NULL;
    }
    d->pd.context = ctx;
    d->pds++;
    return &d->pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    of_ctx(pd->context)->pds--;
    return 0;
}

static struct ibv_mr *mr_new(struct ibv_pd *pd, size_t len, uint64_t iova, int access, int via)
{
    struct fake_dev *d = of_ctx(pd->context);
    struct ibv_mr *mr;

    atomic_fetch_add(&d->reg_calls, 1);
    if (d->reg_errno) {
        errno = d->reg_errno;
        return NULL;
    }
    d->last_access = access;
    d->last_via = via;
    d->last_iova = iova;
    d->last_len = len;
    mr = calloc(1, sizeof(*mr));
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = (void *)(uintptr_t)iova;
    mr->length = len;
    mr->lkey = atomic_fetch_add(&next_key, 1);
    mr->rkey = mr->lkey | 0x80000000u;
    atomic_fetch_add(&d->mrs, 1);
    return mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return mr_new(pd, len, (uintptr_t)addr, access, 'r');
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned int access)
{
    return mr_new(pd, len, iova, (int)access, 'i');
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access)
{
    struct fake_dev *d = of_ctx(pd->context);

    if (fake_dmabuf_errno || fd < 0) {
        errno = fake_dmabuf_errno ? fake_dmabuf_errno : EBADF;
        return NULL;
    }
    d->last_fd = fd;
    d->last_offset = offset;
    return mr_new(pd, len, iova, access, 'd');
}

static int dereg_mr(struct ibv_mr *mr)
{
    atomic_fetch_sub(&of_ctx(mr->context)->mrs, 1);
    free(mr);
    return 0;
}

static const char *event_type_str(enum ibv_event_type event)
{
    return event == IBV_EVENT_PORT_ERR ? "port error" : "event";
}

void fake_table(struct ib_verbs *v)
{
    memset(v, 0, sizeof(*v));
    v->get_device_list = get_device_list;
    v->free_device_list = free_device_list;
    v->get_device_name = get_device_name;
    v->get_device_guid = get_device_guid;
    v->open_device = open_device;
    v->close_device = close_device;
    v->query_device = query_device;
    v->query_port = query_port;
    v->query_port_speed_ex = query_port_speed_ex;
    v->query_gid = query_gid;
    v->query_gid_ex = query_gid_ex;
    v->get_async_event = get_async_event;
    v->ack_async_event = ack_async_event;
    v->alloc_pd = alloc_pd;
    v->dealloc_pd = dealloc_pd;
    v->reg_mr = reg_mr;
    v->reg_mr_iova2 = reg_mr_iova2;
    v->reg_dmabuf_mr = reg_dmabuf_mr;
    v->dereg_mr = dereg_mr;
    v->event_type_str = event_type_str;
}

void fake_event(struct fake_dev *d, enum ibv_event_type type, int port, void *object)
{
    struct ibv_async_event ev;
    ssize_t n;

    memset(&ev, 0, sizeof(ev));
    ev.event_type = type;
    if (object) {
        ev.element.qp = object; /* the pointers of the union share their place */
    } else {
        ev.element.port_num = port;
    }
    n = write(d->event_fd, &ev, sizeof(ev));
    assert(n == (ssize_t)sizeof(ev));
    (void)n;
}

/* --- directory tree --- */

const char *fake_tree_begin(void)
{
    char *made;

    snprintf(tree, sizeof(tree), "%s/r2-tree-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    made = mkdtemp(tree);
    assert(made != NULL);
    return made;
}

static void path_in_tree(char *out, size_t len, const char *path)
{
    snprintf(out, len, "%.200s/%s", tree, path);
    for (char *s = strchr(out + strlen(tree) + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        mkdir(out, 0755);
        *s = '/';
    }
}

void fake_tree_file(const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *f;

    path_in_tree(full, sizeof(full), path);
    if (text == NULL) {
        mkdir(full, 0755);
        return;
    }
    f = fopen(full, "w");
    assert(f != NULL);
    fputs(text, f);
    fclose(f);
}

void fake_tree_link(const char *path, const char *target)
{
    char full[PATH_MAX];
    int rc;

    path_in_tree(full, sizeof(full), path);
    rc = symlink(target, full);
    assert(rc == 0);
    (void)rc;
}

void fake_tree_device(struct fake_dev *d, const char *pci, int numa)
{
    char path[PATH_MAX], target[PATH_MAX], text[16];

    snprintf(path, sizeof(path), "devices/%s/numa_node", pci);
    snprintf(text, sizeof(text), "%d\n", numa);
    fake_tree_file(path, text);
    snprintf(path, sizeof(path), "ib/%s/device", d->dev.name);
    snprintf(target, sizeof(target), "../../devices/%s", pci);
    fake_tree_link(path, target);
    snprintf(d->dev.ibdev_path, sizeof(d->dev.ibdev_path), "%.100s/ib/%.60s", tree, d->dev.name);
}

static int node_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

void fake_tree_end(void)
{
    nftw(tree, node_remove, 16, FTW_DEPTH | FTW_PHYS);
}
