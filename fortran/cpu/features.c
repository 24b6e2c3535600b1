/* SPDX-License-Identifier: MIT
 * The instruction set of this processor, which Fortran has no word for.
 *
 * Source: GCC manual, "X86 Built-in Functions"; the levels are those of the x86-64 psABI. The operating system must
 * support them, too (it saves the registers): __builtin_cpu_supports asks for both. */

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
