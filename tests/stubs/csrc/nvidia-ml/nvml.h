/* What the parts of the stand-in NVML share. Numbers and layouts follow NVIDIA's documented NVML API. */
#ifndef OOMGUARD_NVML_H
#define OOMGUARD_NVML_H

#include "../card/card.h"

#define API __attribute__((visibility("default")))

typedef int status;
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    UNSUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25
};

enum { MAX_SLICES = 7, WHOLE = -1 };

/* A card, or a MIG slice of one. */
typedef struct { int card, slice; } *device;

device device_of(int card, int slice);
/* What stops a call: not initialised, no driver, a handle that is not ours, a lost card, the script. `on` may be NULL. */
status entered(cards *state, device on, const char *function);
/* gpuN.KEY of a card, gpuN.migM.KEY of a slice. */
u64 number_of(const cards *state, device of, const char *key, u64 otherwise);
int text_of(const cards *state, device of, const char *key, int nth, char *value, size_t size);
status give_text(char *to, unsigned size, const char *text);

/* Begin a function: read the cards into `state`, return what stops it. */
#define ENTER(on) \
    cards state; \
    status stopped = entered(&state, on, __func__); \
    if (stopped) return stopped
#define ENTER_DEVICE(on) \
    if (!(on)) return INVALID_ARGUMENT; \
    ENTER(on)

#endif
