/* What the parts of the stand-in runtime share. */
#ifndef OOMGUARD_RUNTIME_H
#define OOMGUARD_RUNTIME_H

#include "../card/card.h"
#include "cuda_types.h"

enum { GRANULARITY = 2 << 20 }; /* a real card hands out memory in pieces of 2 MiB too */

typedef enum { ON_DEVICE, ON_HOST } kind;

typedef struct {
    char *start;
    u64 bytes;
    int device;
    kind where;
} block;

/* Remember an error for cudaGetLastError, and pass it on. */
status noted(status error);
int current_device(void);
/* Whether a call may go on: a card is there, not lost, not in an error state, and the script has no failure for it. */
status healthy(const char *function, int device);

u64 rounded(u64 bytes);
/* Take memory of a card, or OUT_OF_MEMORY. The first call also takes what a context costs. */
status charge(int device, u64 bytes);
void credit(int device, u64 bytes);
/* Address space without memory behind it until it is touched; NULL when there is none. */
void *address_space(u64 bytes, int protection);
void block_add(void *start, u64 bytes, int device, kind where);
/* 1 when there is such a block: the one that starts there (and forget it), or the one that holds the address. */
int block_take(void *start, block *taken);
int block_find(const void *address, block *found);

#endif
