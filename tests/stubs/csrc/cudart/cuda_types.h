/* The public CUDA 13 types and numbers that the stubs need, declared by hand, so that no CUDA header is needed.
 * Layouts and numbers follow NVIDIA's documented runtime and driver API. */
#ifndef OOMGUARD_CUDA_TYPES_H
#define OOMGUARD_CUDA_TYPES_H

#include <stddef.h>

#define API __attribute__((visibility("default")))

typedef int status;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    DEVICES_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NOT_READY = 600,
    HOST_MEMORY_NOT_REGISTERED = 713,
    LAUNCH_FAILURE = 719,
    NOT_SUPPORTED = 801
};

enum { MEMORY_UNREGISTERED = 0, MEMORY_HOST = 1, MEMORY_DEVICE = 2 };
enum { NO_CAPTURE = 0 };
enum { ENTRY_POINT_FOUND = 0 };

enum {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8,
    ATTRIBUTE_WARP_SIZE = 10,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
    ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_SHARED_MEMORY_OPT_IN = 97,
    ATTRIBUTE_VIRTUAL_MEMORY = 102,
    ATTRIBUTE_MEMORY_POOLS = 115
};

typedef struct { unsigned x, y, z; } dim3;
typedef struct stream *stream;
typedef struct event *event;

typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
} pointer_attributes;
_Static_assert(sizeof(pointer_attributes) == 88, "cudaPointerAttributes");

typedef struct {
    size_t shared_bytes, constant_bytes, local_bytes;
    int max_threads_per_block, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared_bytes;
    int other[24];
} function_attributes;
_Static_assert(sizeof(function_attributes) == 144, "cudaFuncAttributes");

/* cudaDeviceProp is 1008 bytes; only these are filled in. */
enum {
    PROPERTIES_BYTES = 1008,
    PROPERTY_NAME = 0,
    PROPERTY_NAME_BYTES = 256,
    PROPERTY_UUID = 256,
    PROPERTY_TOTAL_BYTES = 288,
    PROPERTY_SHARED_PER_BLOCK = 296,
    PROPERTY_REGISTERS_PER_BLOCK = 304,
    PROPERTY_WARP_SIZE = 308,
    PROPERTY_MAX_THREADS_PER_BLOCK = 320,
    PROPERTY_MAX_GRID = 336,
    PROPERTY_MAJOR = 360,
    PROPERTY_MINOR = 364,
    PROPERTY_MULTIPROCESSORS = 384,
    PROPERTY_PCI_BUS = 568,
    PROPERTY_L2_BYTES = 596,
    PROPERTY_THREADS_PER_MULTIPROCESSOR = 604,
    PROPERTY_REGISTERS_PER_MULTIPROCESSOR = 632,
    PROPERTY_SHARED_OPT_IN = 672
};

#endif
