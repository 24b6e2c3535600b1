/* SPDX-License-Identifier: MIT
 * Scratch memory that one call leaves for the next. Memory that is given back to the system comes back as pages that
 * are not there yet: to be given half a megabyte anew takes as long as a small convolution.
 *
 * One block is kept in the process, and whoever takes it has it alone. A line before it says how long it is. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

enum { LINE = 64, LARGEST = 1 << 25 };

static _Atomic(char *) kept;

static size_t *length_of(char *block) { return (size_t *)(block - LINE); }

static void give_up(char *block)
{
    if (block) free(block - LINE);
}

/* Memory of undefined contents that begins with a cache line; null where there is none. `bytes` is a multiple of LINE */
char *cnn_take_scratch(size_t bytes)
{
    char *block = atomic_exchange(&kept, NULL);
    if (block && *length_of(block) >= bytes) return block;
    give_up(block);
    block = bytes > (size_t)-1 - LINE ? NULL : aligned_alloc(LINE, bytes + LINE);
    if (!block) return NULL;
    block += LINE;
    *length_of(block) = bytes;
    return block;
}

/* May be null. Large blocks are not kept: beside what is done with them new pages take no time */
void cnn_give_back_scratch(char *block)
{
    if (block && *length_of(block) <= LARGEST) block = atomic_exchange(&kept, block);
    give_up(block);
}
