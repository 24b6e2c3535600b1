// SPDX-License-Identifier: MIT
// A kernel's accesses: each is inside an allocation that an argument points into, and threads, which a GPU runs in any
// order, leave each other's numbers alone.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include "blocks.h"
#include "touch.h"

enum { SEVERAL = -1, THREADS = 256 };

extern int cnn_host_tid[3], cnn_host_ctaid[3], cnn_host_nctaid[3];
int cnn_host_launch(const char *name, const unsigned grid[3], const unsigned block[3], void **arguments);

static const struct window nothing;
const struct window *touched_last = &nothing;
static struct window windows[MAX_RANGES];
static int n_windows;
static const char *name;
static jmp_buf stop;

static uint32_t thread(void)
{
   return (uint32_t)((cnn_host_ctaid[1] * cnn_host_nctaid[0] + cnn_host_ctaid[0]) * THREADS + cnn_host_tid[0]) + 1;
}

const struct window *touch_window(uintptr_t address, unsigned bytes, bool writes)
{
   const char *why = address % bytes ? "at no multiple of their size" : "outside of what its arguments point to";
   for (int i = 0; i < n_windows && address % bytes == 0; i++) {
      if (address < windows[i].from || address + bytes > windows[i].to) continue;
      if (!writes || windows[i].writers) return touched_last = &windows[i];
      why = "of an array that it only reads";
   }
   const struct block *b = block_at((void *)address);
   char where[80] = "no memory of a device";
   if (b) snprintf(where, sizeof where, "byte %ld of an allocation of %zu", (long)((char *)address - b->address), b->bytes);
   complain("%s: thread %u %s %u bytes %s (%s)", name, thread(), writes ? "writes" : "reads", bytes, why, where);
   longjmp(stop, 1);
}

void touch_shared(const struct window *w, uintptr_t address, unsigned bytes, bool writes)
{
   size_t at = (address - w->from) / 2;
   uint32_t me = thread(), *writer = &w->writers[at], *reader = &w->readers[at];
   if ((*writer && *writer != me) || (writes && *reader && *reader != me)) {
      complain("%s: thread %u %s byte %ld of an allocation of %zu, which another thread %s", name, me,
               writes ? "writes" : "reads", (long)(address - w->from), (size_t)(w->to - w->from),
               *writer && *writer != me ? "has written" : "has read");
      longjmp(stop, 1);
   }
   for (unsigned i = 0; i < (bytes + 1) / 2; i++) {
      if (writes) writer[i] = me;
      else reader[i] = reader[i] && reader[i] != me ? (uint32_t)SEVERAL : me;
   }
}

static void open_window(const struct range *range)
{
   const struct block *b = block_at(range->address);
   int i = 0;
   while (i < n_windows && windows[i].from != (uintptr_t)b->address) i++;
   if (i == n_windows) windows[n_windows++] = (struct window){(uintptr_t)b->address, (uintptr_t)b->address + b->bytes, 0, 0};
   if (!range->write || windows[i].writers) return;
   windows[i].writers = calloc(b->bytes / 2 + 1, sizeof(uint32_t));
   windows[i].readers = calloc(b->bytes / 2 + 1, sizeof(uint32_t));
   if (!windows[i].writers || !windows[i].readers) abort();
}

// Runs a kernel that may touch the allocations of these ranges
void launch_watched(const char *kernel, const unsigned grid[3], const unsigned block[3], void **arguments,
                    const struct range *ranges, int n)
{
   name = kernel;
   n_windows = 0;
   for (int i = 0; i < n; i++) open_window(&ranges[i]);
   if (!setjmp(stop) && cnn_host_launch(kernel, grid, block, arguments) != 0)
      complain("%s: not among the kernels built for the host", kernel);
   touched_last = &nothing;
   for (int i = 0; i < n_windows; i++) {
      free(windows[i].writers);
      free(windows[i].readers);
   }
}
