// SPDX-License-Identifier: MIT
// What a kernel touches while it runs, for launch.c and the kernels that tests/software_device/ptx_as_c.py translates.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// An allocation that an argument of the kernel points into. Where the kernel writes: for each two bytes the thread that
// wrote them last, and the thread that read them, or SEVERAL; threads count from 1
struct window {
   uintptr_t from, to;
   uint32_t *writers, *readers;
};
extern const struct window *touched_last;
// The window of an access. What no window allows ends the launch with a complaint, and does not return
const struct window *touch_window(uintptr_t address, unsigned bytes, bool writes);
void touch_shared(const struct window *window, uintptr_t address, unsigned bytes, bool writes);

static inline uintptr_t touch(uintptr_t address, unsigned bytes, bool writes)
{
   const struct window *w = touched_last;
   if (address < w->from || address + bytes > w->to || address % bytes || (writes && !w->writers))
      w = touch_window(address, bytes, writes);
   if (w->writers) touch_shared(w, address, bytes, writes);
   return address;
}
#define TOUCH touch
