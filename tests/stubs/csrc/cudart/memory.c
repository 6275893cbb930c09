/* Device memory is address space of the process: charged against the card, real enough for copies, free until touched. */
#include "runtime.h"

#include <string.h>
#include <sys/mman.h>

enum { HOST_PAGE = 4096 };

API status cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    cards state;
    int device = current_device();
    status error = healthy(__func__, device);
    if (!error) error = charge(device, 0); /* asking brings a context up, as on a real card */
    if (error) return noted(error);
    cards_read(&state);
    u64 used = card_used(&state, device);
    *total_bytes = card_total(&state, device);
    *free_bytes = used > *total_bytes ? 0 : *total_bytes - used;
    return SUCCESS;
}

static status allocate(const char *function, void **start, size_t bytes) {
    int device = current_device();
    u64 whole = rounded(bytes);
    *start = NULL;
    if (!bytes) return SUCCESS;
    status error = healthy(function, device);
    if (!error) error = charge(device, whole);
    if (error) return noted(error);
    *start = address_space(whole, PROT_READ | PROT_WRITE);
    if (!*start) {
        credit(device, whole);
        return noted(OUT_OF_MEMORY);
    }
    block_add(*start, whole, device, ON_DEVICE);
    return SUCCESS;
}

static status release(void *start) {
    block gone;
    if (!start) return SUCCESS;
    if (!block_take(start, &gone)) return noted(INVALID_VALUE);
    munmap(gone.start, gone.bytes);
    if (gone.where == ON_DEVICE) credit(gone.device, gone.bytes);
    return SUCCESS;
}

API status cudaMalloc(void **start, size_t bytes) { return allocate(__func__, start, bytes); }

API status cudaMallocAsync(void **start, size_t bytes, stream on) {
    (void)on;
    return allocate(__func__, start, bytes);
}

/* cudaFree(NULL) is the usual way to bring a context up. */
API status cudaFree(void *start) { return start ? release(start) : noted(charge(current_device(), 0)); }

API status cudaFreeAsync(void *start, stream on) {
    (void)on;
    return release(start);
}

API status cudaHostAlloc(void **start, size_t bytes, unsigned flags) {
    (void)flags;
    status error = healthy(__func__, current_device());
    u64 whole = (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
    *start = error ? NULL : address_space(whole ? whole : HOST_PAGE, PROT_READ | PROT_WRITE);
    if (!*start) return noted(error ? error : OUT_OF_MEMORY);
    block_add(*start, whole ? whole : HOST_PAGE, current_device(), ON_HOST);
    return SUCCESS;
}

API status cudaFreeHost(void *start) { return release(start); }

API status cudaHostRegister(void *start, size_t bytes, unsigned flags) {
    (void)flags;
    block_add(start, bytes, current_device(), ON_HOST);
    return SUCCESS;
}

API status cudaHostUnregister(void *start) {
    block gone;
    return block_take(start, &gone) ? SUCCESS : noted(HOST_MEMORY_NOT_REGISTERED);
}

API status cudaPointerGetAttributes(pointer_attributes *attributes, const void *address) {
    block found;
    memset(attributes, 0, sizeof *attributes);
    if (!block_find(address, &found)) {
        attributes->type = MEMORY_UNREGISTERED;
        attributes->device = -2;
        return SUCCESS;
    }
    attributes->type = found.where == ON_HOST ? MEMORY_HOST : MEMORY_DEVICE;
    attributes->device = found.device;
    attributes->device_pointer = (void *)address;
    attributes->host_pointer = found.where == ON_HOST ? (void *)address : NULL;
    return SUCCESS;
}

static status copy(const char *function, void *to, const void *from, size_t bytes) {
    status error = healthy(function, current_device());
    if (!error) memmove(to, from, bytes);
    return noted(error);
}

API status cudaMemcpy(void *to, const void *from, size_t bytes, int direction) {
    (void)direction;
    return copy(__func__, to, from, bytes);
}

API status cudaMemcpyAsync(void *to, const void *from, size_t bytes, int direction, stream on) {
    (void)direction, (void)on;
    return copy(__func__, to, from, bytes);
}

API status cudaMemcpyPeerAsync(void *to, int device, const void *from, int source, size_t bytes, stream on) {
    (void)device, (void)source, (void)on;
    return copy(__func__, to, from, bytes);
}

API status cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height,
                             int direction, stream on) {
    (void)direction, (void)on;
    status error = healthy(__func__, current_device());
    for (size_t row = 0; !error && row < height; row++) memmove(to + row * to_pitch, from + row * from_pitch, width);
    return noted(error);
}

API status cudaMemset(void *start, int value, size_t bytes) {
    status error = healthy(__func__, current_device());
    if (!error) memset(start, value, bytes);
    return noted(error);
}

API status cudaMemsetAsync(void *start, int value, size_t bytes, stream on) {
    (void)on;
    return cudaMemset(start, value, bytes);
}

/* Memory pools: one, with nothing to set. */
API status cudaDeviceGetDefaultMemPool(void **pool, int device) {
    static int pools[MAX_CARDS];
    *pool = &pools[device];
    return SUCCESS;
}

API status cudaMemPoolSetAttribute(void *pool, int attribute, void *value) {
    (void)pool, (void)attribute, (void)value;
    return SUCCESS;
}

API status cudaMemPoolGetAttribute(void *pool, int attribute, void *value) {
    (void)pool, (void)attribute;
    memset(value, 0, sizeof(u64));
    return SUCCESS;
}

API status cudaMemPoolSetAccess(void *pool, const void *access, size_t count) {
    (void)pool, (void)access, (void)count;
    return SUCCESS;
}

API status cudaMemPoolTrimTo(void *pool, size_t keep) {
    (void)pool, (void)keep;
    return SUCCESS;
}
