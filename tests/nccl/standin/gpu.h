/*
 * A GPU that is none: device memory is memory of the host, a stream is a queue that a thread works
 * off, a kernel is a function of ours. Inner interface of the stand-in.
 */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPUS_MAX   16
#define GPU_MEMORY ((size_t)8 << 30) /* of a device, for each process */

/* Settings by the environment: STANDIN_GPUS, STANDIN_SM, STANDIN_DMABUF, STANDIN_LOG,
 * STANDIN_BUSID. */
int gpu_count(void);
int gpu_sm(void);
bool gpu_dmabuf(void);
bool gpu_logs(void);
const char *gpu_busid(int dev);
void gpu_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void gpu_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The device of the calling thread. */
extern _Thread_local int gpu_current;

enum gpu_kind { GPU_MEM_DEVICE, GPU_MEM_HOST, GPU_MEM_REGISTERED, GPU_MEM_IPC };
struct gpu_parts;
struct gpu_mem {
    char *addr;
    size_t len;
    int kind, dev, fd;
    struct gpu_parts *parts; /* device memory: which parts of it have a file of their own; behind it
                                in its file */
    struct gpu_mem *next;
};
void *gpu_alloc(size_t len, enum gpu_kind kind, int dev); /* NULL: no memory */
bool gpu_free(void *addr);
size_t gpu_left(int dev); /* of GPU_MEMORY */
bool gpu_note(void *addr, size_t len, enum gpu_kind kind,
              int dev);                               /* memory that is there already */
bool gpu_find(const void *addr, struct gpu_mem *out); /* a copy; false: not ours */
void *gpu_import(int pid, int fd, size_t len,
                 int dev); /* device memory of another process; NULL: errno */
int gpu_export(
    void *addr,
    size_t len); /* a file descriptor of device memory from @addr on, to be closed; -1: cannot be */

struct gpu_stream;
struct gpu_event;
typedef void (*gpu_fn)(void *arg);
struct gpu_stream *gpu_stream_new(int dev);
void gpu_stream_free(struct gpu_stream *s);
struct gpu_stream *
gpu_stream_of(void *handle); /* handles 0, 1 and 2 are the default stream of the current device */
/* @arg is free()d behind its last use. quick: may be called at once if idle. */
void gpu_push(struct gpu_stream *s, gpu_fn fn, void *arg, bool quick);
void gpu_sync(struct gpu_stream *s);
void gpu_sync_all(void);
bool gpu_idle(struct gpu_stream *s);
struct gpu_event *gpu_event_new(void);
void gpu_event_free(struct gpu_event *e);
void gpu_event_record(struct gpu_event *e, struct gpu_stream *s);
/* The stream waits. @external: on what happens outside of a capture. An error of CUDA's, or 0. */
int gpu_event_wait(struct gpu_event *e, struct gpu_stream *s, bool external);
bool gpu_event_done(struct gpu_event *e);
void gpu_event_sync(struct gpu_event *e);
double gpu_event_time(struct gpu_event *e); /* seconds */

/* Graphs: gpu_graph.c. Numbers of modes and errors are those of both of CUDA's interfaces;
 * functions that return one return 0 where all is well. */
enum gpu_capture_mode { GPU_CAPTURE_GLOBAL, GPU_CAPTURE_THREAD, GPU_CAPTURE_RELAXED };
enum gpu_capture_error {
    GPU_ILLEGAL_STATE = 401,
    GPU_CAPTURE_UNSUPPORTED = 900,
    GPU_CAPTURE_INVALIDATED = 901,
    GPU_CAPTURE_MERGE = 902,
    GPU_CAPTURE_UNMATCHED = 903,
    GPU_CAPTURE_ISOLATION = 905,
    GPU_CAPTURED_EVENT = 907,
    GPU_CAPTURE_WRONG_THREAD = 908
};
struct gpu_graph;
int gpu_capture_begin(struct gpu_stream *s, enum gpu_capture_mode mode);
int gpu_capture_end(struct gpu_stream *s, struct gpu_graph **graph);
/* The graph that the stream is captured into; NULL: none. */
struct gpu_graph *gpu_capture_of(struct gpu_stream *s, unsigned long long *id, bool *is_spoiled);
void gpu_capture_mode_swap(int *mode); /* of the calling thread */
/* @call may not be made now: any; on this stream; of this event. */
int gpu_unsafe(const char *call);
int gpu_unsafe_on(const char *call, struct gpu_stream *s);
int gpu_unsafe_at(const char *call, struct gpu_event *e);
void gpu_graph_record_add(struct gpu_graph *g, struct gpu_event *e);
void gpu_graph_object_add(struct gpu_graph *g, gpu_fn destroy, void *arg); /* at its end */
void gpu_graph_hold(struct gpu_graph *g);                                  /* freed once more */
void gpu_graph_free(struct gpu_graph *g);
int gpu_graph_launch(struct gpu_graph *g, struct gpu_stream *s);

void gpu_copy(void *dst, const void *src, size_t len, struct gpu_stream *s);
void gpu_set(void *dst, int value, size_t len, struct gpu_stream *s);

/* @rows pieces of @width bytes, @dst_pitch and @src_pitch apart: the last one first, since CUDA
 * promises no order; some of the copies when the call has returned. */
struct gpu_rows {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch, width, rows;
};
void gpu_copy_rows(const struct gpu_rows *r, struct gpu_stream *s);

/*
 * Who runs kernels. NCCL's are in the library of a release, which is loaded behind this one, and
 * add themselves; a program's own have a host implementation here (kernels of nccl-tests).
 */
struct gpu_code {
    bool (*has)(const char *kernel);       /* whether it runs a kernel of this name */
    const char *(*name)(const void *stub); /* of a stub that was not registered; may be NULL */
    int (*sizes)(const char *kernel, size_t *sizes); /* of its arguments, and how many there are; at
                                                most GPU_ARGS_MAX */
    void (*run)(const char *kernel, unsigned blocks, void **args); /* in the stream's thread */
    struct gpu_code *next;
};
#define GPU_ARGS_MAX 16
void gpu_code_add(struct gpu_code *code);

/* A kernel by the address of its host stub, as cudaGetFuncBySymbol() gives it. */
struct gpu_kernel {
    const void *stub;
    char *name;
    const struct gpu_code *code; /* from the first launch on */
    struct gpu_kernel *next;
};
struct gpu_kernel *gpu_kernel_of(const void *stub_or_kernel);
void gpu_kernel_register(const void *stub, const char *name);
bool gpu_launch(struct gpu_kernel *k, unsigned blocks, void **params, void **extra,
                struct gpu_stream *s);

/* What both of CUDA's interfaces say of a device: gpu_device.c. */
bool gpu_has(int dev);
int gpu_attribute(int attribute); /* numbers of the driver's, which are the runtime's */
bool gpu_reaches(int dev, int peer);
bool gpu_busid_copy(char *id, int len, int dev);
bool gpu_busid_find(const char *id, int *dev);
void gpu_name_copy(char *name, size_t len);
void gpu_uuid_copy(char uuid[16], int dev);
bool gpu_is_device_memory(const struct gpu_mem *m);

#endif
