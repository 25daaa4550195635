/* Settings of the stand-in, its log, and the calling thread's device. */
#include "tests/nccl/standin/gpu.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local int gpu_current;

static int setting(const char *name, int otherwise)
{
    const char *s = getenv(name);

    return s && *s ? atoi(s) : otherwise;
}

int gpu_count(void)
{
    int n = setting("STANDIN_GPUS", 1);

    return n < 0 ? 0 : n > GPUS_MAX ? GPUS_MAX : n;
}

int gpu_sm(void)
{
    return setting("STANDIN_SM", 80);
}

bool gpu_dmabuf(void)
{
    return setting("STANDIN_DMABUF", 1) != 0;
}

bool gpu_logs(void)
{
    static int on = -1;

    if (on < 0) {
        on = setting("STANDIN_LOG", 0);
    }
    return on;
}

/* STANDIN_BUSID: those of all GPUs, with commas between. */
const char *gpu_busid(int dev)
{
    static char id[GPUS_MAX][16];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *s = getenv("STANDIN_BUSID");

    pthread_mutex_lock(&lock);
    for (int i = 0; s && i < dev; i++) {
        s = strchr(s, ',');
        s = s ? s + 1 : NULL;
    }
    if (s) {
        snprintf(id[dev], sizeof(id[dev]), "%.12s", s);
    } else {
        snprintf(id[dev], sizeof(id[dev]), "0000:%02x:00.0", 0x40 + dev);
    }
    pthread_mutex_unlock(&lock);
    return id[dev];
}

void gpu_log(const char *format, ...)
{
    va_list ap;
    char text[512];

    if (!gpu_logs()) {
        return;
    }
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "stand-in for CUDA, process %d: %s\n", (int)getpid(), text);
}

void gpu_die(const char *format, ...)
{
    va_list ap;
    char text[512];

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "stand-in for CUDA, process %d: %s\n", (int)getpid(), text);
    abort();
}
