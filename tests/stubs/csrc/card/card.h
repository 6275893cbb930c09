/* The pretend cards: a folder that tests write and that every stub library of every process reads.
 *
 *   $OOMGUARD_PRETEND_GPU/cards          "key=value" lines, read again at every call; replaced as a whole by the test
 *   $OOMGUARD_PRETEND_GPU/process.PID    "DEVICE BYTES" lines: what a living process holds, kept by libcudart
 *   $OOMGUARD_PRETEND_GPU/lock           locked with flock(2) around the accounting
 *
 * Without the variable, or without the file, there is no card and no driver. Keys (sizes take K, M, G):
 *
 *   count, driver, gpuN.{name,uuid,total,reserved,context,other,lost,error,process,...}, xid
 *   hang.FUNCTION=1                      the call (of NVML) does not return while this line is there
 *   fail.FUNCTION=CODE[,SKIP[,TIMES]]    the call answers CODE, after SKIP good calls of this process, TIMES times
 */
#ifndef OOMGUARD_CARD_H
#define OOMGUARD_CARD_H

#include <stddef.h>

typedef unsigned long long u64;

enum { MAX_CARDS = 16, MAX_PROCESSES = 64 };

/* The file's text with a line feed before the first line. */
typedef struct { char text[16384]; } cards;

typedef struct { int pid; u64 bytes; } holder;

/* 0, or -1 when there is no card file. */
int cards_read(cards *state);
int cards_count(const cards *state);
/* The nth (from 0) value of a key. Length, or -1 when there is none. */
int cards_text(const cards *state, const char *key, int nth, char *value, size_t size);
u64 cards_number(const cards *state, const char *key, u64 otherwise);
int card_text(const cards *state, int card, const char *key, int nth, char *value, size_t size);
u64 card_number(const cards *state, int card, const char *key, u64 otherwise);
/* "123", "4K", "2M", "1G" */
u64 size_of(const char *text);

u64 card_total(const cards *state, int card);
/* Reserved by the driver, held by nobody in particular, and by all processes. */
u64 card_used(const cards *state, int card);
/* Pretended processes ("gpuN.process=PID:BYTES") first, then living ones. Their number, at most `most`. */
int card_holders(const cards *state, int card, holder *found, int most);
/* Write down what this process holds of each card; `up` says which cards it uses at all. */
void process_publish(const u64 *bytes, const int *up);
void process_forget(void);
/* Whether this process uses a card. Once it does it goes on until its end, so that costs no more than a look. */
int process_uses(int card);

/* The code that the script wants this call of this process to answer; 0 when it shall do its work. */
int scripted_failure(const cards *state, const char *function);

int accounting_lock(void);
void accounting_unlock(int lock);

#endif
