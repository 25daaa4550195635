/* libnvidia-ml.so.1 for NCCL on GPUs that are none: how many, where on PCI, no NVLink. All of the
 * published interface. */
#include "tests/nccl/standin/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static char handles[GPUS_MAX];

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

/* STANDIN_NVLINK: that many links between each GPU and the one beside it. */
static unsigned links(void)
{
    const char *s = getenv("STANDIN_NVLINK");

    return s && gpu_count() > 1 ? (unsigned)atoi(s) : 0;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    return OK;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int e);
const char *nvmlErrorString(int e)
{
    static char text[32];

    snprintf(text, sizeof(text), "NVML error %d", e);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)gpu_count();
    return OK;
}

int nvmlDeviceGetHandleByIndex(unsigned i, void **dev);
int nvmlDeviceGetHandleByIndex(unsigned i, void **dev)
{
    *dev = &handles[i];
    return i < (unsigned)gpu_count() ? OK : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId(const char *id, void **dev);
int nvmlDeviceGetHandleByPciBusId(const char *id, void **dev)
{
    for (int i = 0; i < gpu_count(); i++) {
        if (strcasecmp(id, gpu_busid(i)) == 0) {
            *dev = &handles[i];
            return OK;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(void *dev, unsigned *i);
int nvmlDeviceGetIndex(void *dev, unsigned *i)
{
    *i = (unsigned)((char *)dev - handles);
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(void *dev, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(void *dev, int *major, int *minor)
{
    (void)dev;
    *major = gpu_sm() / 10;
    *minor = gpu_sm() % 10;
    return OK;
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status);
int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status)
{
    (void)a;
    (void)b;
    (void)index;
    *status = 0;
    return OK;
}

int nvmlDeviceGetNvLinkState(void *dev, unsigned link, int *active);
int nvmlDeviceGetNvLinkState(void *dev, unsigned link, int *active)
{
    (void)dev;
    *active = link < links();
    return links() ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkCapability(void *dev, unsigned link, int capability, unsigned *value);
int nvmlDeviceGetNvLinkCapability(void *dev, unsigned link, int capability, unsigned *value)
{
    (void)dev;
    (void)capability;
    *value = link < links();
    return links() ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo(void *dev, unsigned link, void *pci);
int nvmlDeviceGetNvLinkRemotePciInfo(void *dev, unsigned link, void *pci)
{
    struct pci_info *p = pci;
    int i = (int)((char *)dev - handles);

    if (link >= links()) {
        return NOT_SUPPORTED;
    }
    memset(p, 0, sizeof(*p));
    snprintf(p->legacy, sizeof(p->legacy), "%s", gpu_busid(i ^ 1));
    snprintf(p->id, sizeof(p->id), "0000%s", gpu_busid(i ^ 1));
    return OK;
}

int nvmlDeviceGetFieldValues(void *dev, int n, void *values);
int nvmlDeviceGetFieldValues(void *dev, int n, void *values)
{
    (void)dev;
    (void)n;
    (void)values;
    return NOT_SUPPORTED;
}
