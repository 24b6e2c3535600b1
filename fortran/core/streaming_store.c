/* SPDX-License-Identifier: MIT
 * Copies that do not go through the cache, which Fortran has no word for.
 *
 * A store to a line that is not in the cache first reads the line from memory. What is written as whole lines and not
 * needed soon can do without that, and without pushing out what is. Whole lines: 16-byte stores one after the other are
 * joined by the processor, on every x86-64.
 *
 * Source: Intel Architecture Optimization Reference Manual, "Non-temporal stores". */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

void cnn_copy_nontemporal(char *to, const char *from, size_t bytes)
{
    const size_t line = 64, head = (size_t)(-(uintptr_t)to & (line - 1));
    if (bytes < head + line) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, head);
    size_t i = head;
    for (; i + line <= bytes; i += line)
        for (size_t part = i; part < i + line; part += 16)
            _mm_stream_si128((__m128i *)(to + part), _mm_loadu_si128((const __m128i *)(from + part)));
    memcpy(to + i, from + i, bytes - i);
}

/* Other threads may see such copies late, unless this is called before they are told */
void cnn_wait_for_copies(void) { _mm_sfence(); }

#else

void cnn_copy_nontemporal(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
void cnn_wait_for_copies(void) { }

#endif
