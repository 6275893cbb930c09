/* Xid events: each "xid=CARD:CODE" line that the test adds is delivered once to every set that listens to the card. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { XID = 8, LOOK_EVERY_US = 5000 };

typedef struct {
    unsigned listens_to;
    u64 types;
    int seen; /* lines delivered or passed over */
} event_set;

typedef struct {
    device on;
    u64 type, data;
    unsigned gpu_instance, compute_instance;
} event_data;

API status nvmlDeviceGetSupportedEventTypes(device on, u64 *types) {
    ENTER_DEVICE(on);
    *types = XID;
    return SUCCESS;
}

API status nvmlEventSetCreate(event_set **made) {
    char line[64];
    ENTER(NULL);
    *made = calloc(1, sizeof **made);
    if (!*made) abort();
    while (cards_text(&state, "xid", (*made)->seen, line, sizeof line) >= 0) (*made)->seen++; /* the past is past */
    return SUCCESS;
}

API status nvmlEventSetFree(event_set *set) {
    free(set);
    return SUCCESS;
}

API status nvmlDeviceRegisterEvents(device on, u64 types, event_set *set) {
    ENTER_DEVICE(on);
    set->listens_to |= 1u << on->card;
    set->types |= types;
    return SUCCESS;
}

static int next_event(const cards *state, event_set *set, event_data *data) {
    char line[64];
    while (cards_text(state, "xid", set->seen, line, sizeof line) >= 0) {
        int card;
        u64 code;
        set->seen++;
        if (sscanf(line, "%d:%llu", &card, &code) != 2 || card < 0 || card >= MAX_CARDS) continue;
        if (!(set->listens_to >> card & 1) || !(set->types & XID)) continue;
        *data = (event_data){device_of(card, WHOLE), XID, code, ~0u, ~0u};
        return 1;
    }
    return 0;
}

static u64 now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000 + (u64)now.tv_nsec / 1000000;
}

API status nvmlEventSetWait_v2(event_set *set, event_data *data, unsigned timeout_ms) {
    for (u64 began = now_ms();; usleep(LOOK_EVERY_US)) {
        ENTER(NULL);
        if (next_event(&state, set, data)) return SUCCESS;
        if (now_ms() - began >= timeout_ms) return TIMEOUT;
    }
}
