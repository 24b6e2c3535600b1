// SPDX-License-Identifier: MIT
// What the strict software device offers to tests beside the CUDA interface.
#pragma once
#include <stdint.h>

#pragma GCC visibility push(default)
// Calls of a function since the start, or one of: "host synchronisations", "device synchronisations",
// "kernel launches", "operations", "default stream operations", "complaints", "device bytes",
// "device bytes, most", "bytes to device", "bytes to host",
// "nodes captured", "nodes replayed", "graph launches" (of CUDA graphs; captured work is counted when it is replayed),
// "graph engine 0" and so on: plans of that engine that were executed; "plans made", and of these "plans compiled";
// "contexts made": on how many devices
int64_t strict_counter(const char *name);
// The n-th call from now of this function returns `status` (0: every call); a null name forgets all
void strict_fail(const char *name, int64_t from_now, int status);
// Number of things alive, of complaints and of operations that never ran; the text says which.
// The text is truncated to `size`. STRICT_AT_EXIT looks at the same when the process ends.
int64_t strict_report(char *text, int64_t size);
// Forgets complaints (not what is alive), so that one process can hold several tests
void strict_forget(void);
#pragma GCC visibility pop

void report_add(const char *complaint);
