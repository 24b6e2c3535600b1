/* SPDX-License-Identifier: MIT
 * Preloaded: a clock that only waiting moves, so that what is timed does not hang on how busy the machine is. A plan of
 * the software device that is told to be slow waits by usleep; here the time is up at once. */

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static atomic_llong microseconds;

int clock_gettime(clockid_t which, struct timespec *time)
{
    (void)which;
    /* A look at the clock takes time, too: it never stands still */
    long long now = atomic_fetch_add(&microseconds, 1);
    *time = (struct timespec){.tv_sec = now / 1000000, .tv_nsec = now % 1000000 * 1000};
    return 0;
}

int usleep(useconds_t duration)
{
    atomic_fetch_add(&microseconds, duration);
    return 0;
}
