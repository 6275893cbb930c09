/* Driver functions that torch asks the runtime for. Expandable segments live on the virtual memory ones. */
#include "runtime.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uintptr_t address;

/* Physical memory of a card; mapped or held `references` times. */
typedef struct {
    int device;
    u64 bytes;
    int references;
} physical;

typedef struct mapping {
    address at;
    u64 bytes;
    physical *memory;
    struct mapping *next;
} mapping;
static mapping *mappings; /* torch changes them under its own device lock */

/* CUmemAllocationProp: two enums, then the location (kind, device). */
typedef struct {
    int type, handle_types, location_kind, device;
} allocation_properties;

static status device_get(int *device, int ordinal) {
    *device = ordinal;
    return SUCCESS;
}

static status device_attribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == ATTRIBUTE_VIRTUAL_MEMORY;
    return SUCCESS;
}

static status granularity(size_t *bytes, const allocation_properties *properties, int flags) {
    (void)properties, (void)flags;
    *bytes = GRANULARITY;
    return SUCCESS;
}

static status reserve(address *start, size_t bytes, size_t alignment, address wished, u64 flags) {
    (void)alignment, (void)wished, (void)flags;
    void *space = address_space(bytes + GRANULARITY, PROT_NONE);
    *start = rounded((address)space);
    return space ? SUCCESS : OUT_OF_MEMORY;
}

static status unreserve(address start, size_t bytes) {
    munmap((void *)start, bytes);
    return SUCCESS;
}

static status create(physical **handle, size_t bytes, const allocation_properties *properties, u64 flags) {
    (void)flags;
    status error = healthy("cuMemCreate", properties->device);
    if (!error) error = charge(properties->device, bytes);
    if (error) return error;
    *handle = malloc(sizeof **handle);
    if (!*handle) abort();
    **handle = (physical){properties->device, bytes, 1};
    return SUCCESS;
}

static status release(physical *memory) {
    if (--memory->references == 0) {
        credit(memory->device, memory->bytes);
        free(memory);
    }
    return SUCCESS;
}

static status map(address start, size_t bytes, size_t offset, physical *memory, u64 flags) {
    (void)offset, (void)flags;
    mapping *added = malloc(sizeof *added);
    if (!added) abort();
    *added = (mapping){start, bytes, memory, mappings};
    mappings = added;
    memory->references++;
    block_add((void *)start, bytes, memory->device, ON_DEVICE);
    return SUCCESS;
}

static status unmap(address start, size_t bytes) {
    for (mapping **at = &mappings; *at;) {
        mapping *one = *at;
        block gone;
        if (one->at < start || one->at >= start + bytes) {
            at = &one->next;
            continue;
        }
        block_take((void *)one->at, &gone);
        mmap((void *)one->at, one->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        release(one->memory);
        *at = one->next;
        free(one);
    }
    return SUCCESS;
}

static status set_access(address start, size_t bytes, const void *access, size_t count) {
    (void)access, (void)count;
    return mprotect((void *)start, bytes, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}

API const char *cudaGetErrorString(status error);

static status error_string(status error, const char **text) {
    *text = cudaGetErrorString(error);
    return SUCCESS;
}

static status address_range(address *start, size_t *bytes, address within) {
    block found;
    if (!block_find((void *)within, &found)) return INVALID_VALUE;
    if (start) *start = (address)found.start;
    if (bytes) *bytes = found.bytes;
    return SUCCESS;
}

static status current_context(address *context) {
    *context = 0x1000 + (address)current_device();
    return SUCCESS;
}

static status unsupported(void) { return NOT_SUPPORTED; }

static const struct {
    const char *name;
    void *function;
} functions[] = {
    {"cuDeviceGet", device_get},
    {"cuDeviceGetAttribute", device_attribute},
    {"cuMemGetAllocationGranularity", granularity},
    {"cuMemAddressReserve", reserve},
    {"cuMemAddressFree", unreserve},
    {"cuMemCreate", create},
    {"cuMemRelease", release},
    {"cuMemMap", map},
    {"cuMemUnmap", unmap},
    {"cuMemSetAccess", set_access},
    {"cuGetErrorString", error_string},
    {"cuMemGetAddressRange", address_range},
    {"cuCtxGetCurrent", current_context},
};

API status cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, u64 flags, int *found) {
    (void)version, (void)flags;
    *function = unsupported;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) *function = functions[i].function;
    if (found) *found = ENTRY_POINT_FOUND;
    return SUCCESS;
}
