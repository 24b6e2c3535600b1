/* SPDX-License-Identifier: MIT
 * Floating-point traps and flags of a thread, put aside while the library computes and put back after it.
 *
 * Vector code computes numbers that it then does not take, and some of them overflow or are no numbers. A program that is
 * compiled with -ffpe-trap=invalid,zero,overflow would end there, where nothing is wrong.
 *
 * Source: C11 7.6 (feholdexcept, fesetenv); fegetexcept of the GNU C library. */

#define _GNU_SOURCE
#include <fenv.h>

/* As in cnn_core_float_traps */
enum { SAVED_BYTES = 64 };
typedef union { fenv_t environment; char bytes[SAVED_BYTES]; } saved_type;
_Static_assert(sizeof(saved_type) == SAVED_BYTES, "an environment is larger than cnn_core_float_traps has room for");

/* 1 where the thread has traps, which its other threads may have, too */
int cnn_hold_traps(saved_type *saved)
{
    int found = 0;
#ifdef __GLIBC__
    found = fegetexcept() != 0;
#endif
    feholdexcept(&saved->environment);
    return found;
}

void cnn_restore_traps(const saved_type *saved) { fesetenv(&saved->environment); }
