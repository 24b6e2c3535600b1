/* SPDX-License-Identifier: MIT
 * Scratch memory that one call leaves for the next. Memory that is given back to the system comes back as pages that
 * are not there yet: to be given half a megabyte anew takes as long as a small convolution.
 *
 * Some blocks are kept in the process, as many as a call needs, and whoever takes one has it alone. A line before it
 * says how long it is. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
/* A block that is longer than a call has asked for would hide what lies behind its end */
enum { LINE = 64, BLOCKS = 3, LARGEST = 0 };
#else
enum { LINE = 64, BLOCKS = 3, LARGEST = 1 << 24 };
#endif

static _Atomic(char *) kept[BLOCKS];

static size_t *length_of(char *block) { return (size_t *)(block - LINE); }

static void give_up(char *block)
{
    if (block) free(block - LINE);
}

/* Memory of undefined contents that begins with a cache line; null where there is none. `bytes` is a multiple of LINE */
char *cnn_take_scratch(size_t bytes)
{
    char *block = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        block = atomic_exchange(&kept[i], NULL);
        if (block && *length_of(block) >= bytes) return block;
        /* Too short for this, but perhaps not for what comes next */
        if (block) block = atomic_exchange(&kept[i], block);
        give_up(block);
    }
    block = bytes > (size_t)-1 - LINE ? NULL : aligned_alloc(LINE, bytes + LINE);
    if (!block) return NULL;
    block += LINE;
    *length_of(block) = bytes;
    return block;
}

/* May be null. Large blocks are not kept: beside what is done with them new pages take no time */
void cnn_give_back_scratch(char *block)
{
    if (block && *length_of(block) > LARGEST) {
        give_up(block);
        return;
    }
    /* Where all places are taken the longest stay */
    for (int i = 0; block && i < BLOCKS; i++) {
        char *other = atomic_exchange(&kept[i], block);
        if (!other || *length_of(other) <= *length_of(block)) {
            block = other;
        } else {
            block = atomic_exchange(&kept[i], other);
        }
    }
    give_up(block);
}
