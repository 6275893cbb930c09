/* Start, end, errors, and finding a device. */
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HANG_LOOK_US = 5000 };

static struct { int card, slice; } handles[MAX_CARDS][MAX_SLICES + 1]; /* [card][0] is the whole card */
static int initialized;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

device device_of(int card, int slice) { return (device)&handles[card][slice + 1]; }

status entered(cards *state, device on, const char *function) {
    char key[96];
    if (initialized <= 0) return UNINITIALIZED;
    if (cards_read(state)) return DRIVER_NOT_LOADED;
    snprintf(key, sizeof key, "hang.%s", function);
    while (cards_number(state, key, 0)) { /* until the test takes the line away */
        usleep(HANG_LOOK_US);
        if (cards_read(state)) return DRIVER_NOT_LOADED;
    }
    status scripted = scripted_failure(state, function);
    if (scripted || !on) return scripted;
    if ((char *)on < (char *)handles || (char *)on >= (char *)handles + sizeof handles) return INVALID_ARGUMENT;
    if (on->card >= cards_count(state)) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "fail.%s", function);
    scripted = (status)card_number(state, on->card, key, SUCCESS);
    if (scripted) return scripted;
    return card_number(state, on->card, "lost", 0) ? GPU_IS_LOST : SUCCESS;
}

static void key_of(char *full, size_t size, device of, const char *key) {
    if (of->slice == WHOLE) snprintf(full, size, "gpu%d.%s", of->card, key);
    else snprintf(full, size, "gpu%d.mig%d.%s", of->card, of->slice, key);
}

u64 number_of(const cards *state, device of, const char *key, u64 otherwise) {
    char full[128];
    key_of(full, sizeof full, of, key);
    return cards_number(state, full, otherwise);
}

int text_of(const cards *state, device of, const char *key, int nth, char *value, size_t size) {
    char full[128];
    key_of(full, sizeof full, of, key);
    return cards_text(state, full, nth, value, size);
}

status give_text(char *to, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

API status nvmlInitWithFlags(unsigned flags) {
    cards state;
    (void)flags;
    if (cards_read(&state)) return DRIVER_NOT_LOADED;
    status scripted = scripted_failure(&state, "nvmlInit");
    if (scripted) return scripted;
    pthread_mutex_lock(&mutex);
    for (int card = 0; card < MAX_CARDS; card++)
        for (int slice = WHOLE; slice < MAX_SLICES; slice++) *device_of(card, slice) = (typeof(*device_of(0, 0))){card, slice};
    initialized++;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

API status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API status nvmlInit(void) { return nvmlInitWithFlags(0); }

API status nvmlShutdown(void) {
    pthread_mutex_lock(&mutex);
    status answer = initialized > 0 ? SUCCESS : UNINITIALIZED;
    if (initialized > 0) initialized--;
    pthread_mutex_unlock(&mutex);
    return answer;
}

API const char *nvmlErrorString(status error) {
    switch (error) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

static status give_setting(const char *function, const char *key, const char *otherwise, char *to, unsigned size) {
    cards state;
    char value[80];
    status stopped = entered(&state, NULL, function);
    if (stopped) return stopped;
    return give_text(to, size, cards_text(&state, key, 0, value, sizeof value) < 0 ? otherwise : value);
}

API status nvmlSystemGetDriverVersion(char *to, unsigned size) {
    return give_setting(__func__, "driver", "580.65.06", to, size);
}

API status nvmlSystemGetNVMLVersion(char *to, unsigned size) {
    return give_setting(__func__, "nvml", "13.580.65.06", to, size);
}

API status nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(NULL);
    *version = 13000;
    return SUCCESS;
}

API status nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

API status nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NULL);
    *count = (unsigned)cards_count(&state);
    return SUCCESS;
}

static status give_card(const cards *state, int card, device *found) {
    if (card < 0 || card >= cards_count(state)) return INVALID_ARGUMENT;
    if (card_number(state, card, "lost", 0)) return GPU_IS_LOST;
    *found = device_of(card, WHOLE);
    return SUCCESS;
}

API status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) {
    ENTER(NULL);
    return give_card(&state, index > MAX_CARDS ? -1 : (int)index, found);
}

/* The bus number is the index plus one, as nvmlDeviceGetPciInfo says. */
API status nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *found) {
    unsigned domain, bus, slot;
    ENTER(NULL);
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 || bus < 1 || bus > (unsigned)cards_count(&state)) return NOT_FOUND;
    return give_card(&state, (int)bus - 1, found);
}

API status nvmlDeviceGetHandleByUUID(const char *wanted, device *found) {
    ENTER(NULL);
    for (int card = 0; card < cards_count(&state); card++)
        for (int slice = WHOLE; slice < MAX_SLICES; slice++) {
            char uuid[96];
            *found = device_of(card, slice);
            if (text_of(&state, *found, "uuid", 0, uuid, sizeof uuid) >= 0 && !strcmp(uuid, wanted)) return SUCCESS;
        }
    return NOT_FOUND;
}
