// SPDX-License-Identifier: MIT
// The allocations, for memory.c and access.c.
#pragma once
#include "device.h"

enum { PAGE = 4096 };

struct block {
   struct block *next;
   char *mapping; // guard page, pages, guard page
   size_t mapped;
   char *address;
   size_t bytes, rounded;
   int device;
   bool pinned, live;
};
// The block, alive or freed, in whose pages the address lies
struct block *block_at(const void *address);
void watch_touches(void);
