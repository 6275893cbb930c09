/* Stand-in for libcuda.so.1: the few driver functions that torch links (through libcaffe2_nvrtc.so). */
#include "../card/card.h"

#define API __attribute__((visibility("default")))

typedef int status;
enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_SUPPORTED = 801 };
enum { ATTRIBUTE_MAJOR = 75, POINTER_CONTEXT = 1 };
enum { FIRST_CONTEXT = 0x1000 };

static __thread size_t context;

API status cuInit(unsigned flags) {
    cards state;
    (void)flags;
    return cards_read(&state) ? NO_DEVICE : SUCCESS;
}

API status cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

API status cuDeviceGetCount(int *count) {
    cards state;
    *count = cards_read(&state) ? 0 : cards_count(&state);
    return SUCCESS;
}

API status cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return SUCCESS;
}

API status cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == ATTRIBUTE_MAJOR ? 8 : 0;
    return SUCCESS;
}

/* A process that holds memory of a card has a context. torch asks before every allocation. */
API status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    *active = process_uses(device);
    return SUCCESS;
}

API status cuDevicePrimaryCtxRetain(size_t *made, int device) {
    *made = (size_t)(FIRST_CONTEXT + device);
    return SUCCESS;
}

API status cuCtxGetCurrent(size_t *current) {
    *current = context ? context : FIRST_CONTEXT;
    return SUCCESS;
}

API status cuCtxSetCurrent(size_t current) {
    context = current;
    return SUCCESS;
}

API status cuGetErrorString(status error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : error == NOT_SUPPORTED ? "operation not supported" : "unknown error";
    return SUCCESS;
}

API status cuPointerGetAttribute(void *value, int attribute, size_t pointer) {
    (void)pointer;
    if (attribute == POINTER_CONTEXT) *(size_t *)value = FIRST_CONTEXT;
    else *(int *)value = 0;
    return SUCCESS;
}
