/* SPDX-License-Identifier: MIT
 * Preloaded: memory that nobody has written to yet is full of NaN. The C library's own names for the real ones are
 * glibc's. */

#include <stddef.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_memalign(size_t, size_t);

static void *filled(void *memory, size_t bytes)
{
    return memory == NULL ? NULL : memset(memory, 0xff, bytes);
}

void *malloc(size_t bytes)
{
    return filled(__libc_malloc(bytes), bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return filled(__libc_memalign(alignment, bytes), bytes);
}
