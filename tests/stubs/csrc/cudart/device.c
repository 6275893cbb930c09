/* Devices, errors, start-up. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

static __thread int device_in_use;
static __thread status last_error;

status noted(status error) {
    if (error != SUCCESS && error != NOT_READY) last_error = error;
    return error;
}

int current_device(void) { return device_in_use; }

status healthy(const char *function, int device) {
    cards state;
    if (cards_read(&state)) return NO_DEVICE;
    if (device < 0 || device >= cards_count(&state)) return INVALID_DEVICE;
    status error = (status)card_number(&state, device, "error", SUCCESS); /* a sticky error, as after a fault in a kernel */
    if (error) return error;
    if (card_number(&state, device, "lost", 0)) return DEVICES_UNAVAILABLE;
    return scripted_failure(&state, function);
}

API status cudaGetLastError(void) {
    status error = last_error;
    last_error = SUCCESS;
    return error;
}

API status cudaPeekAtLastError(void) { return last_error; }

API const char *cudaGetErrorName(status error) {
    switch (error) {
    case SUCCESS: return "cudaSuccess";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case NO_DEVICE: return "cudaErrorNoDevice";
    case LAUNCH_FAILURE: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
    }
}

API const char *cudaGetErrorString(status error) {
    switch (error) {
    case SUCCESS: return "no error";
    case INVALID_VALUE: return "invalid argument";
    case OUT_OF_MEMORY: return "out of memory";
    case DEVICES_UNAVAILABLE: return "CUDA-capable device(s) is/are busy or unavailable";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case INVALID_DEVICE: return "invalid device ordinal";
    case 700: return "an illegal memory access was encountered";
    case LAUNCH_FAILURE: return "unspecified launch failure";
    case NOT_SUPPORTED: return "operation not supported";
    default: return "unknown error";
    }
}

API status cudaDriverGetVersion(int *version) {
    cards state;
    *version = cards_read(&state) ? 0 : 13000; /* 0: no driver is installed */
    return SUCCESS;
}

API status cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

API status cudaGetDeviceCount(int *count) {
    cards state;
    *count = cards_read(&state) ? 0 : cards_count(&state);
    return *count ? SUCCESS : noted(NO_DEVICE);
}

API status cudaGetDevice(int *device) {
    *device = device_in_use;
    return SUCCESS;
}

API status cudaSetDevice(int device) {
    int count;
    cudaGetDeviceCount(&count);
    if (device < 0 || device >= count) return noted(INVALID_DEVICE);
    device_in_use = device;
    return SUCCESS;
}

API status cudaDeviceSynchronize(void) { return noted(healthy(__func__, device_in_use)); }

API status cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    (void)device, (void)peer;
    *can = 0;
    return SUCCESS;
}

API status cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)peer, (void)flags;
    return SUCCESS;
}

API status cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

API status cudaDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, (size_t)size, "0000:%02X:00.0", device + 1);
    return SUCCESS;
}

API status cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case ATTRIBUTE_MAJOR: *value = 8; break;
    case ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case ATTRIBUTE_MULTIPROCESSORS: *value = 16; break;
    case ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case ATTRIBUTE_SHARED_MEMORY_OPT_IN: *value = 232448; break;
    case ATTRIBUTE_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case ATTRIBUTE_UNIFIED_ADDRESSING:
    case ATTRIBUTE_MEMORY_POOLS: *value = 1; break;
    default: *value = 0;
    }
    return SUCCESS;
}

static void put(char *properties, size_t at, int value) { memcpy(properties + at, &value, sizeof value); }

static void put_size(char *properties, size_t at, size_t value) { memcpy(properties + at, &value, sizeof value); }

API status cudaGetDeviceProperties(char *properties, int device) {
    cards state;
    if (cards_read(&state)) return noted(NO_DEVICE);
    if (device < 0 || device >= cards_count(&state)) return noted(INVALID_DEVICE);
    memset(properties, 0, PROPERTIES_BYTES);
    if (card_text(&state, device, "name", 0, properties + PROPERTY_NAME, PROPERTY_NAME_BYTES) < 0)
        strcpy(properties + PROPERTY_NAME, "Pretend GPU");
    memset(properties + PROPERTY_UUID, 0xA0 + device, 16);
    put_size(properties, PROPERTY_TOTAL_BYTES, card_total(&state, device));
    put_size(properties, PROPERTY_SHARED_PER_BLOCK, 49152);
    put(properties, PROPERTY_REGISTERS_PER_BLOCK, 65536);
    put(properties, PROPERTY_WARP_SIZE, 32);
    put(properties, PROPERTY_MAX_THREADS_PER_BLOCK, 1024);
    put(properties, PROPERTY_MAX_GRID, 0x7fffffff);
    put(properties, PROPERTY_MAX_GRID + 4, 65535);
    put(properties, PROPERTY_MAX_GRID + 8, 65535);
    put(properties, PROPERTY_MAJOR, 8);
    put(properties, PROPERTY_MULTIPROCESSORS, 16);
    put(properties, PROPERTY_PCI_BUS, device + 1);
    put(properties, PROPERTY_L2_BYTES, 50 << 20);
    put(properties, PROPERTY_THREADS_PER_MULTIPROCESSOR, 2048);
    put(properties, PROPERTY_REGISTERS_PER_MULTIPROCESSOR, 65536);
    put_size(properties, PROPERTY_SHARED_OPT_IN, 232448);
    return SUCCESS;
}
