/* What a device says of itself: name, memory, processes, load, ECC, MIG. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

API status nvmlDeviceGetIndex(device on, unsigned *index) {
    ENTER_DEVICE(on);
    *index = (unsigned)on->card;
    return SUCCESS;
}

API status nvmlDeviceGetMinorNumber(device on, unsigned *minor) { return nvmlDeviceGetIndex(on, minor); }

API status nvmlDeviceGetName(device on, char *to, unsigned size) {
    char name[96];
    ENTER_DEVICE(on);
    return give_text(to, size, card_text(&state, on->card, "name", 0, name, sizeof name) < 0 ? "Pretend GPU" : name);
}

API status nvmlDeviceGetUUID(device on, char *to, unsigned size) {
    char uuid[96];
    ENTER_DEVICE(on);
    if (text_of(&state, on, "uuid", 0, uuid, sizeof uuid) < 0)
        snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", on->card);
    return give_text(to, size, uuid);
}

typedef struct {
    char short_id[16];
    unsigned domain, bus, slot, device_id, subsystem_id;
    char id[32];
} pci_info;

API status nvmlDeviceGetPciInfo_v3(device on, pci_info *info) {
    ENTER_DEVICE(on);
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)on->card + 1;
    info->device_id = 0x233510deu;
    snprintf(info->short_id, sizeof info->short_id, "0000:%02X:00.0", info->bus);
    snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

API status nvmlDeviceGetCudaComputeCapability(device on, int *major, int *minor) {
    ENTER_DEVICE(on);
    *major = 8;
    *minor = 0;
    return SUCCESS;
}

/* ---- memory: what the test pretends plus what processes on the stand-in CUDA runtime hold ---- */

typedef struct { u64 total, free, used; } memory_v1; /* `used` includes what the driver reserves */
typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} memory_v2;

enum { MEMORY_V2 = sizeof(memory_v2) | 2 << 24 };

static void memory_of(const cards *state, device of, memory_v2 *memory) {
    int whole = of->slice == WHOLE;
    u64 all = whole ? card_used(state, of->card) : number_of(state, of, "used", 0);
    memory->total = whole ? card_total(state, of->card) : number_of(state, of, "total", 0);
    memory->reserved = whole ? card_number(state, of->card, "reserved", 0) : 0;
    memory->used = all - memory->reserved;
    memory->free = all > memory->total ? 0 : memory->total - all;
}

API status nvmlDeviceGetMemoryInfo(device on, memory_v1 *memory) {
    memory_v2 whole;
    ENTER_DEVICE(on);
    memory_of(&state, on, &whole);
    *memory = (memory_v1){whole.total, whole.free, whole.used + whole.reserved};
    return SUCCESS;
}

API status nvmlDeviceGetMemoryInfo_v2(device on, memory_v2 *memory) {
    ENTER_DEVICE(on);
    if (memory->version != MEMORY_V2) return VERSION_MISMATCH;
    memory_of(&state, on, memory);
    return SUCCESS;
}

/* ---- processes ---- */

typedef struct { unsigned pid; u64 bytes; } process_v1;
typedef struct {
    unsigned pid;
    u64 bytes;
    unsigned gpu_instance, compute_instance;
} process_v3;

static int holders_of(const cards *state, device of, holder *found) {
    char value[128];
    int count = 0;
    if (of->slice == WHOLE) return card_holders(state, of->card, found, MAX_PROCESSES);
    for (int nth = 0; count < MAX_PROCESSES && text_of(state, of, "process", nth, value, sizeof value) >= 0; nth++) {
        const char *colon = strchr(value, ':');
        if (colon) found[count++] = (holder){atoi(value), size_of(colon + 1)};
    }
    return count;
}

/* The documented protocol: too small an array answers INSUFFICIENT_SIZE and the number there is. */
static status list(const cards *state, device on, unsigned *count, process_v1 *old, process_v3 *new) {
    holder found[MAX_PROCESSES];
    unsigned room = *count, none = on->slice == WHOLE ? ~0u : (unsigned)on->slice;
    int hidden = number_of(state, on, "hide_process_memory", 0) != 0; /* as under WDDM, or without permission */
    *count = (unsigned)holders_of(state, on, found);
    if (*count && (room < *count || (!old && !new))) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        u64 bytes = hidden ? ~0ull : found[i].bytes;
        if (old) old[i] = (process_v1){(unsigned)found[i].pid, bytes};
        if (new) new[i] = (process_v3){(unsigned)found[i].pid, bytes, none, on->slice == WHOLE ? ~0u : 0};
    }
    return SUCCESS;
}

API status nvmlDeviceGetComputeRunningProcesses(device on, unsigned *count, process_v1 *found) {
    ENTER_DEVICE(on);
    return list(&state, on, count, found, NULL);
}

API status nvmlDeviceGetComputeRunningProcesses_v3(device on, unsigned *count, process_v3 *found) {
    ENTER_DEVICE(on);
    return list(&state, on, count, NULL, found);
}

API status nvmlDeviceGetComputeRunningProcesses_v2(device on, unsigned *count, process_v3 *found) {
    ENTER_DEVICE(on);
    return list(&state, on, count, NULL, found);
}

API status nvmlDeviceGetGraphicsRunningProcesses_v3(device on, unsigned *count, process_v3 *found) {
    (void)found;
    ENTER_DEVICE(on);
    *count = 0;
    return SUCCESS;
}

API status nvmlDeviceGetMPSComputeRunningProcesses_v3(device on, unsigned *count, process_v3 *found) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(on, count, found);
}

/* ---- load and health ---- */

typedef struct { unsigned gpu, memory; } utilization;

API status nvmlDeviceGetUtilizationRates(device on, utilization *rates) {
    ENTER_DEVICE(on);
    if (card_number(&state, on->card, "mig", 0)) return UNSUPPORTED;
    rates->gpu = (unsigned)number_of(&state, on, "utilization.gpu", 0);
    rates->memory = (unsigned)number_of(&state, on, "utilization.memory", 0);
    return SUCCESS;
}

API status nvmlDeviceGetTemperature(device on, int sensor, unsigned *celsius) {
    (void)sensor;
    ENTER_DEVICE(on);
    *celsius = (unsigned)number_of(&state, on, "temperature", 40);
    return SUCCESS;
}

API status nvmlDeviceGetPowerUsage(device on, unsigned *milliwatts) {
    ENTER_DEVICE(on);
    *milliwatts = (unsigned)number_of(&state, on, "power", 70000);
    return SUCCESS;
}

API status nvmlDeviceGetPcieThroughput(device on, int counter, unsigned *kib_per_second) {
    ENTER_DEVICE(on);
    if (counter != 0 && counter != 1) return INVALID_ARGUMENT;
    *kib_per_second = (unsigned)number_of(&state, on, counter ? "pcie.received" : "pcie.sent", 0);
    return SUCCESS;
}

API status nvmlDeviceGetEccMode(device on, unsigned *now, unsigned *pending) {
    ENTER_DEVICE(on);
    *now = *pending = (unsigned)number_of(&state, on, "ecc", 1);
    return SUCCESS;
}

API status nvmlDeviceGetTotalEccErrors(device on, int uncorrected, int aggregate, u64 *count) {
    char key[64];
    ENTER_DEVICE(on);
    if (!number_of(&state, on, "ecc", 1)) return UNSUPPORTED;
    snprintf(key, sizeof key, "ecc.%s.%s", aggregate ? "aggregate" : "volatile", uncorrected ? "uncorrected" : "corrected");
    *count = number_of(&state, on, key, 0);
    return SUCCESS;
}

/* ---- MIG: "gpuN.mig=1", and a slice for each "gpuN.migM.uuid" ---- */

API status nvmlDeviceGetMigMode(device on, unsigned *now, unsigned *pending) {
    char value[16];
    ENTER_DEVICE(on);
    if (card_text(&state, on->card, "mig", 0, value, sizeof value) < 0) return UNSUPPORTED;
    *now = *pending = atoi(value) != 0;
    return SUCCESS;
}

API status nvmlDeviceGetMaxMigDeviceCount(device on, unsigned *count) {
    ENTER_DEVICE(on);
    *count = card_number(&state, on->card, "mig", 0) ? MAX_SLICES : 0;
    return SUCCESS;
}

API status nvmlDeviceGetMigDeviceHandleByIndex(device on, unsigned index, device *slice) {
    char uuid[96];
    ENTER_DEVICE(on);
    if (index >= MAX_SLICES) return INVALID_ARGUMENT;
    *slice = device_of(on->card, (int)index);
    return text_of(&state, *slice, "uuid", 0, uuid, sizeof uuid) < 0 ? NOT_FOUND : SUCCESS;
}

API status nvmlDeviceIsMigDeviceHandle(device on, unsigned *is) {
    ENTER_DEVICE(on);
    *is = on->slice != WHOLE;
    return SUCCESS;
}

API status nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device on, device *whole) {
    ENTER_DEVICE(on);
    if (on->slice == WHOLE) return INVALID_ARGUMENT;
    *whole = device_of(on->card, WHOLE);
    return SUCCESS;
}

API status nvmlDeviceGetGpuInstanceId(device on, unsigned *id) {
    ENTER_DEVICE(on);
    if (on->slice == WHOLE) return UNSUPPORTED;
    *id = (unsigned)on->slice;
    return SUCCESS;
}

API status nvmlDeviceGetComputeInstanceId(device on, unsigned *id) {
    ENTER_DEVICE(on);
    *id = 0;
    return on->slice == WHOLE ? UNSUPPORTED : SUCCESS;
}

/* ---- torch does without these, but takes no libnvidia-ml that lacks them ---- */

API status nvmlDeviceGetNvLinkRemoteDeviceType(device on, unsigned link, unsigned *type) {
    (void)link, (void)type;
    ENTER_DEVICE(on);
    return UNSUPPORTED;
}

API status nvmlDeviceGetNvLinkRemotePciInfo_v2(device on, unsigned link, pci_info *info) {
    (void)link, (void)info;
    ENTER_DEVICE(on);
    return UNSUPPORTED;
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* 0: no fabric */
    unsigned health;
} fabric_info;

/* An error here makes torch warn at every start of its virtual memory path. */
API status nvmlDeviceGetGpuFabricInfoV(device on, fabric_info *info) {
    ENTER_DEVICE(on);
    *info = (fabric_info){.version = info->version};
    return SUCCESS;
}
