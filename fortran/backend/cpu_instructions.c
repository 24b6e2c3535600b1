/* SPDX-License-Identifier: MIT
 * What Fortran has no word for: the instruction set of this processor, and fetching memory ahead of its use.
 *
 * Source: GCC manual, "X86 Built-in Functions" and "Other Builtins"; the levels are those of the x86-64 psABI. The
 * operating system must support them, too (it saves the registers): __builtin_cpu_supports asks for both. */

#include <stdint.h>

/* 1: the baseline; 2: AVX2 and FMA (x86-64-v3); 3: AVX-512 F, BW, CD, DQ, VL (x86-64-v4) */
int cnn_cpu_features(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? 3 : avx2 ? 2 : 1;
#else
    return 1;
#endif
}

/* Ask for `bytes` bytes to come to the second-level cache; the address may be any, nothing is read */
void cnn_fetch(const char *address, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(address + i, 0, 2);
}

/* The same for memory that will be written */
void cnn_fetch_to_write(const char *address, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(address + i, 1, 2);
}
