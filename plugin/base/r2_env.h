/*
 * What the plugin needs of its surroundings beside verbs and the OOB channel, so that the same code
 * runs under real threads and clocks and inside a simulation with a virtual clock and one thread.
 */
#ifndef R2_ENV_H
#define R2_ENV_H

#include <stdint.h>

#include "base/r2_time.h"

struct r2_env {
    void *arg;
    uint64_t (*now_ns)(
        void *arg); /* monotonic; any thread; no syscall on the usual machines (vDSO) */
    void (*random)(void *arg, void *out,
                   unsigned len);         /* unpredictable in the product, seeded in simulation */
    void (*wait)(void *arg, uint64_t ns); /* blocks the calling thread; NULL where nothing can be
                                             waited for, as with one thread */
    int threads; /* 1: the instance starts its own threads; 0: somebody calls the step functions */
    /* threads == 0: the service step, or the worker of a device, has something to do now. */
    void (*kick_service)(void *arg);
    void (*kick_worker)(void *arg, int device);
};

/* The real thing: CLOCK_MONOTONIC, getrandom, threads. */
void r2_env_default(struct r2_env *env);

#endif
