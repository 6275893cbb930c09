/* Who holds how much of which card, and which addresses are whose. */
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static u64 held_bytes[MAX_CARDS];
static int context_up[MAX_CARDS];
static int owner_pid; /* a forked child must not remove its parent's file */

typedef struct node {
    block is;
    struct node *next;
} node;
static node *blocks;

u64 rounded(u64 bytes) { return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY; }

status charge(int device, u64 bytes) {
    cards state;
    status answer = SUCCESS;
    if (cards_read(&state)) return NO_DEVICE;
    pthread_mutex_lock(&mutex);
    int lock = accounting_lock();
    u64 context = context_up[device] ? 0 : card_number(&state, device, "context", 0);
    if (card_used(&state, device) + context + bytes > card_total(&state, device)) {
        answer = OUT_OF_MEMORY;
    } else {
        held_bytes[device] += context + bytes;
        context_up[device] = 1;
        owner_pid = (int)getpid();
        process_publish(held_bytes, context_up);
    }
    accounting_unlock(lock);
    pthread_mutex_unlock(&mutex);
    return answer;
}

void credit(int device, u64 bytes) {
    pthread_mutex_lock(&mutex);
    int lock = accounting_lock();
    held_bytes[device] -= bytes;
    process_publish(held_bytes, context_up);
    accounting_unlock(lock);
    pthread_mutex_unlock(&mutex);
}

__attribute__((destructor)) static void leave(void) {
    if (owner_pid == (int)getpid()) process_forget();
}

void *address_space(u64 bytes, int protection) {
    void *start = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

void block_add(void *start, u64 bytes, int device, kind where) {
    node *added = malloc(sizeof *added);
    if (!added) abort();
    pthread_mutex_lock(&mutex);
    *added = (node){{start, bytes, device, where}, blocks};
    blocks = added;
    pthread_mutex_unlock(&mutex);
}

int block_take(void *start, block *taken) {
    int found = 0;
    pthread_mutex_lock(&mutex);
    node **at = &blocks;
    while (*at && (*at)->is.start != (char *)start) at = &(*at)->next;
    if (*at) {
        node *gone = *at;
        *taken = gone->is;
        *at = gone->next;
        free(gone);
        found = 1;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

int block_find(const void *address, block *found) {
    int hit = 0;
    pthread_mutex_lock(&mutex);
    for (node *at = blocks; at && !hit; at = at->next) {
        hit = (const char *)address >= at->is.start && (const char *)address < at->is.start + at->is.bytes;
        if (hit) *found = at->is;
    }
    pthread_mutex_unlock(&mutex);
    return hit;
}
