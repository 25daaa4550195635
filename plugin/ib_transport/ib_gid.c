#include "ib_transport/ib_gid.h"

#include <errno.h>
#include <string.h>

#include "ib_transport/ib_sysfs.h"

#define SCORE_USABLE 1
#define SCORE_IPV4   2
#define SCORE_GLOBAL 4
#define SCORE_V2     8
#define SCORE_BEST   (SCORE_USABLE | SCORE_IPV4 | SCORE_GLOBAL | SCORE_V2)

#define GID_INDEX_MAX 255

static int gid_is_ipv4(const uint8_t *raw)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(raw, mapped, sizeof(mapped)) == 0;
}

static int gid_is_link_local(const uint8_t *raw)
{
    if (gid_is_ipv4(raw))
        return raw[12] == 169 && raw[13] == 254;
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

int ib_gid_score(const union ibv_gid *gid, int version)
{
    static const uint8_t zero[16];
    const uint8_t *raw = gid->raw;
    int score = SCORE_USABLE;

    /* an empty slot, or a link-local prefix whose interface part is not there yet */
    if (memcmp(raw, zero, 16) == 0 || (raw[0] == 0xfe && memcmp(raw + 8, zero, 8) == 0))
        return 0;
    if (gid_is_ipv4(raw))
        score |= SCORE_IPV4;
    if (!gid_is_link_local(raw))
        score |= SCORE_GLOBAL;
    if (version == 2)
        score |= SCORE_V2;
    return score;
}

static int gid_version(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int index)
{
    struct ibv_gid_entry entry;
    int version = ib_sysfs_roce_version(ctx->device->ibdev_path, port, index);

    if (version == 0 && v->query_gid_ex && v->query_gid_ex(ctx, port, (uint32_t)index, &entry, 0, sizeof(entry)) == 0)
        version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 1;
    return version;
}

static int gid_read(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
    int rc;

    memset(gid, 0, sizeof(*gid));
    errno = 0;
    rc = v->query_gid(ctx, port, index, gid);
    return ib_verbs_err(rc);
}

/* An index that exists. The errors of single entries are passed over: a table has holes. */
static int gid_search(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int entries)
{
    int best = 0, best_score = 0;
    union ibv_gid gid;

    for (int i = 0; i < entries && best_score < SCORE_BEST; i++) {
        int score;
        if (gid_read(v, ctx, port, i, &gid) != 0 || ib_gid_score(&gid, 0) == 0)
            continue; /* the common case in a long table: no need to ask for its version */
        score = ib_gid_score(&gid, gid_version(v, ctx, port, i));
        if (score > best_score) {
            best_score = score;
            best = i;
        }
    }
    return best;
}

int ib_gid_choose(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, const struct ibv_port_attr *attr,
                  const struct r2_config *cfg, uint8_t *index, union ibv_gid *gid)
{
    int entries = attr->gid_tbl_len < GID_INDEX_MAX + 1 ? attr->gid_tbl_len : GID_INDEX_MAX + 1;
    int i = 0;

    if (attr->link_layer == IBV_LINK_LAYER_ETHERNET) {
        i = (int)cfg->ib_gid_index;
        if (i >= entries)
            return ERANGE;
        if (i < 0)
            i = gid_search(v, ctx, port, entries);
    }
    *index = (uint8_t)i;
    return gid_read(v, ctx, port, i, gid);
}
