#define _GNU_SOURCE
#include "card.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *folder(void) {
    const char *path = getenv("OOMGUARD_PRETEND_GPU");
    return path && *path ? path : NULL;
}

static int path_of(char *path, size_t size, const char *name) {
    const char *in = folder();
    return in && (size_t)snprintf(path, size, "%s/%s", in, name) < size ? 0 : -1;
}

int cards_read(cards *state) {
    char path[512];
    state->text[0] = '\n';
    state->text[1] = 0;
    if (path_of(path, sizeof path, "cards")) return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = read(file, state->text + 1, sizeof state->text - 2);
    close(file);
    state->text[1 + (length < 0 ? 0 : length)] = 0;
    return 0;
}

int cards_text(const cards *state, const char *key, int nth, char *value, size_t size) {
    char line[200];
    size_t length = (size_t)snprintf(line, sizeof line, "\n%s=", key);
    if (length >= sizeof line) return -1;
    for (const char *at = state->text; (at = strstr(at, line)) != NULL;) {
        at += length;
        if (nth-- > 0) continue;
        size_t end = strcspn(at, "\n");
        if (end >= size) end = size - 1;
        memcpy(value, at, end);
        value[end] = 0;
        return (int)end;
    }
    return -1;
}

u64 size_of(const char *text) {
    char *end;
    u64 number = strtoull(text, &end, 0);
    return *end == 'K' ? number << 10 : *end == 'M' ? number << 20 : *end == 'G' ? number << 30 : number;
}

u64 cards_number(const cards *state, const char *key, u64 otherwise) {
    char value[128];
    return cards_text(state, key, 0, value, sizeof value) < 0 ? otherwise : size_of(value);
}

int card_text(const cards *state, int card, const char *key, int nth, char *value, size_t size) {
    char full[192];
    snprintf(full, sizeof full, "gpu%d.%s", card, key);
    return cards_text(state, full, nth, value, size);
}

u64 card_number(const cards *state, int card, const char *key, u64 otherwise) {
    char value[128];
    return card_text(state, card, key, 0, value, sizeof value) < 0 ? otherwise : size_of(value);
}

int cards_count(const cards *state) {
    u64 count = cards_number(state, "count", 1);
    return count > MAX_CARDS ? MAX_CARDS : (int)count;
}

u64 card_total(const cards *state, int card) { return card_number(state, card, "total", 1ull << 30); }

static int pretended_holders(const cards *state, int card, holder *found, int most) {
    char value[128];
    int count = 0;
    for (int nth = 0; count < most && card_text(state, card, "process", nth, value, sizeof value) >= 0; nth++) {
        const char *colon = strchr(value, ':');
        if (colon) found[count++] = (holder){atoi(value), size_of(colon + 1)};
    }
    return count;
}

/* What the file of one process says of a card. 0 when it does not use it. */
static int held(const char *path, int card, u64 *bytes) {
    FILE *file = fopen(path, "re");
    int which, found = 0;
    if (!file) return 0;
    while (!found && fscanf(file, "%d %llu", &which, bytes) == 2) found = which == card;
    fclose(file);
    return found;
}

int card_holders(const cards *state, int card, holder *found, int most) {
    int count = pretended_holders(state, card, found, most);
    DIR *entries = folder() ? opendir(folder()) : NULL;
    for (struct dirent *entry; entries && count < most && (entry = readdir(entries));) {
        char path[512];
        u64 bytes;
        if (strncmp(entry->d_name, "process.", 8) || path_of(path, sizeof path, entry->d_name)) continue;
        int pid = atoi(entry->d_name + 8);
        if (pid <= 0) continue;
        if (kill(pid, 0) < 0 && errno == ESRCH) unlink(path); /* killed: its memory comes back, as on a real card */
        else if (held(path, card, &bytes)) found[count++] = (holder){pid, bytes};
    }
    if (entries) closedir(entries);
    return count;
}

u64 card_used(const cards *state, int card) {
    holder found[MAX_PROCESSES];
    int count = card_holders(state, card, found, MAX_PROCESSES);
    u64 used = card_number(state, card, "reserved", 0) + card_number(state, card, "other", 0);
    for (int i = 0; i < count; i++) used += found[i].bytes;
    return used;
}

static int process_path(char *path, size_t size, const char *prefix) {
    char name[64];
    snprintf(name, sizeof name, "%s.%d", prefix, (int)getpid());
    return path_of(path, size, name);
}

void process_publish(const u64 *bytes, const int *up) {
    char path[512], partial[512];
    if (process_path(path, sizeof path, "process") || process_path(partial, sizeof partial, "partial")) return;
    FILE *file = fopen(partial, "we");
    if (!file) return;
    for (int card = 0; card < MAX_CARDS; card++)
        if (up[card]) fprintf(file, "%d %llu\n", card, bytes[card]);
    fclose(file);
    rename(partial, path);
}

void process_forget(void) {
    char path[512];
    if (!process_path(path, sizeof path, "process")) unlink(path);
}

int process_uses(int card) {
    static int since[MAX_CARDS]; /* the process in which it was seen, as a forked child uses nothing */
    char path[512];
    u64 bytes;
    if (card < 0 || card >= MAX_CARDS) return 0;
    if (since[card] == (int)getpid()) return 1;
    if (process_path(path, sizeof path, "process") || !held(path, card, &bytes)) return 0;
    since[card] = (int)getpid();
    return 1;
}

/* How often this process has called each function of the script. */
static u64 calls_before(const char *function) {
    static struct { char name[64]; u64 calls; } counted[64];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    u64 before = 0;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        if (!counted[i].name[0]) snprintf(counted[i].name, sizeof counted[i].name, "%s", function);
        if (strcmp(counted[i].name, function)) continue;
        before = counted[i].calls++;
        break;
    }
    pthread_mutex_unlock(&mutex);
    return before;
}

int scripted_failure(const cards *state, const char *function) {
    char key[96], value[64];
    int code = 0;
    u64 skip = 0, times = ~0ull;
    snprintf(key, sizeof key, "fail.%s", function);
    if (cards_text(state, key, 0, value, sizeof value) < 0) return 0;
    if (sscanf(value, "%d,%llu,%llu", &code, &skip, &times) < 1) return 0;
    u64 before = calls_before(function);
    return before >= skip && before - skip < times ? code : 0;
}

int accounting_lock(void) {
    char path[512];
    if (path_of(path, sizeof path, "lock")) return -1;
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0) flock(lock, LOCK_EX);
    return lock;
}

void accounting_unlock(int lock) {
    if (lock >= 0) close(lock);
}
