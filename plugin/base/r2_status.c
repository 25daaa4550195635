#include "r2_status.h"

#include <stddef.h>

static const char *const names[R2_STATUS_COUNT] = {
    [R2_OK] = "ok",
    [R2_AGAIN] = "again",
    [R2_ERR_ARG] = "bad argument",
    [R2_ERR_PATH] = "path lost",
    [R2_ERR_NIC] = "NIC lost",
    [R2_ERR_COMM] = "connection lost",
    [R2_ERR_PEER] = "peer lost",
    [R2_ERR_CONFIG] = "bad configuration",
    [R2_ERR_SYSTEM] = "system error",
    [R2_ERR_INTERNAL] = "internal error",
};

const char *r2_status_name(enum r2_status s)
{
    if ((unsigned)s >= R2_STATUS_COUNT || names[s] == NULL) {
        return "unknown status";
    }
    return names[s];
}
