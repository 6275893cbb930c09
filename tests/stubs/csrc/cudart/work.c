/* Streams and events that are always done, and kernels that are accepted and never run. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct stream { int priority; };
struct event { struct timespec at; };

API status cudaStreamCreateWithPriority(stream *made, unsigned flags, int priority) {
    (void)flags;
    *made = calloc(1, sizeof **made);
    if (!*made) return noted(OUT_OF_MEMORY);
    (*made)->priority = priority;
    return SUCCESS;
}

API status cudaStreamCreateWithFlags(stream *made, unsigned flags) { return cudaStreamCreateWithPriority(made, flags, 0); }
API status cudaStreamCreate(stream *made) { return cudaStreamCreateWithPriority(made, 0, 0); }

API status cudaStreamDestroy(stream on) {
    free(on);
    return SUCCESS;
}

API status cudaStreamGetPriority(stream on, int *priority) {
    *priority = on ? on->priority : 0;
    return SUCCESS;
}

API status cudaStreamQuery(stream on) {
    (void)on;
    return SUCCESS;
}

API status cudaStreamSynchronize(stream on) {
    (void)on;
    return noted(healthy(__func__, current_device()));
}

API status cudaStreamWaitEvent(stream on, event until, unsigned flags) {
    (void)on, (void)until, (void)flags;
    return SUCCESS;
}

API status cudaStreamAddCallback(stream on, void (*call)(stream, status, void *), void *argument, unsigned flags) {
    (void)flags;
    call(on, SUCCESS, argument);
    return SUCCESS;
}

API status cudaLaunchHostFunc(stream on, void (*call)(void *), void *argument) {
    (void)on;
    call(argument);
    return SUCCESS;
}

API status cudaStreamIsCapturing(stream on, int *capture) {
    (void)on;
    *capture = NO_CAPTURE;
    return SUCCESS;
}

API status cudaStreamGetCaptureInfo(stream on, int *capture, u64 *id, void **graph, void ***nodes, void **edges,
                                    size_t *count) {
    (void)on, (void)nodes, (void)edges;
    if (capture) *capture = NO_CAPTURE;
    if (id) *id = 0;
    if (graph) *graph = NULL;
    if (count) *count = 0;
    return SUCCESS;
}

API status cudaThreadExchangeStreamCaptureMode(int *mode) {
    (void)mode;
    return SUCCESS;
}

API status cudaEventCreateWithFlags(event *made, unsigned flags) {
    (void)flags;
    *made = calloc(1, sizeof **made);
    return *made ? SUCCESS : noted(OUT_OF_MEMORY);
}

API status cudaEventCreate(event *made) { return cudaEventCreateWithFlags(made, 0); }

API status cudaEventDestroy(event gone) {
    free(gone);
    return SUCCESS;
}

API status cudaEventRecordWithFlags(event at, stream on, unsigned flags) {
    (void)on, (void)flags;
    clock_gettime(CLOCK_MONOTONIC, &at->at);
    return SUCCESS;
}

API status cudaEventRecord(event at, stream on) { return cudaEventRecordWithFlags(at, on, 0); }

API status cudaEventQuery(event at) {
    (void)at;
    return SUCCESS;
}

API status cudaEventSynchronize(event at) {
    (void)at;
    return noted(healthy(__func__, current_device()));
}

API status cudaEventElapsedTime(float *milliseconds, event from, event to) {
    double seconds = (double)(to->at.tv_sec - from->at.tv_sec) + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e9;
    *milliseconds = (float)(seconds * 1e3);
    return SUCCESS;
}

/* ---- kernels ---- */

API void **__cudaRegisterFatBinary(void *image) {
    static void *handle;
    (void)image;
    return &handle;
}

API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
API void __cudaRegisterFunction(void) {} /* the arguments stay where the caller put them */
API void __cudaRegisterVar(void) {}

API char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared_bytes, void *on) {
    (void)grid, (void)threads, (void)shared_bytes, (void)on;
    return 0;
}

API status __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared_bytes, void **on) {
    *grid = *threads = (dim3){1, 1, 1};
    *shared_bytes = 0;
    *on = NULL;
    return SUCCESS;
}

API status __cudaGetKernel(const void **kernel, const void *function) {
    *kernel = function;
    return SUCCESS;
}

static status launch(const char *function) { return noted(healthy(function, current_device())); }

API status __cudaLaunchKernel(void) { return launch("cudaLaunchKernel"); }
API status cudaLaunchKernel(void) { return launch(__func__); }
API status cudaLaunchCooperativeKernel(void) { return launch("cudaLaunchKernel"); }
API status cudaLaunchKernelExC(void) { return launch("cudaLaunchKernel"); }

API status cudaFuncGetAttributes(function_attributes *attributes, const void *function) {
    (void)function;
    memset(attributes, 0, sizeof *attributes);
    attributes->max_threads_per_block = 1024;
    attributes->registers = 32;
    attributes->ptx_version = attributes->binary_version = 80;
    attributes->max_dynamic_shared_bytes = 49152;
    return SUCCESS;
}

API status cudaFuncSetAttribute(const void *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return SUCCESS;
}

API status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    (void)function, (void)threads, (void)shared;
    *blocks = 2;
    return SUCCESS;
}

API status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                  size_t shared, unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

API status cudaProfilerStart(void) { return SUCCESS; }
API status cudaProfilerStop(void) { return SUCCESS; }
