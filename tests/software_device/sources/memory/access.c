// SPDX-License-Identifier: MIT
// Who may touch memory: ranges that calls check, pages that open while an operation runs, and the end of a
// process that touches device memory from the host.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "blocks.h"

static const char *running; // the operation that runs, or null
static struct sigaction before;

static void touched(int signal, siginfo_t *info, void *context)
{
   (void)context;
   const struct block *b = block_at(info->si_addr);
   if (!b) {
      sigaction(signal, &before, NULL); // not ours: the fault repeats under the old handler
      return;
   }
   long offset = (long)((char *)info->si_addr - b->address);
   char text[300];
   int n = snprintf(text, sizeof text, "strict device: %s touched %s memory%s: byte %ld of an allocation of %zu\n",
                    running ? running : "the host", b->pinned ? "pinned" : "device", b->live ? "" : " that was freed",
                    offset, b->bytes);
   if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(98);
   abort();
}

// The handler of the program, or of its language, stays for all other faults
void watch_touches(void)
{
   struct sigaction now;
   sigaction(SIGSEGV, NULL, &now);
   if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == touched) return;
   before = now;
   memset(&now, 0, sizeof now);
   now.sa_sigaction = touched;
   now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
   sigaction(SIGSEGV, &now, NULL);
}

static bool inside(const struct block *b, const void *address, size_t bytes, const char *what)
{
   if (!b->live) {
      complain("%s: %p is memory that was freed", what, address);
      return false;
   }
   size_t offset = (size_t)((char *)address - b->address);
   if ((char *)address < b->address || offset > b->bytes || bytes > b->bytes - offset) {
      complain("%s: %zu bytes at byte %ld of an allocation of %zu", what, bytes, (long)offset, b->bytes);
      return false;
   }
   return true;
}

bool device_range(const void *address, size_t bytes, int device, const char *what)
{
   const struct block *b = block_at(address);
   if (!b || b->pinned) {
      complain("%s: found %s (%p), expected device memory", what, b ? "pinned host memory" : "no memory of a device",
               address);
      return false;
   }
   if (!inside(b, address, bytes, what)) return false;
   if (b->device != device) {
      complain("%s: memory of device %d used on device %d", what, b->device, device);
      return false;
   }
   return true;
}

bool host_range(const void *address, size_t bytes, const char *what)
{
   const struct block *b = block_at(address);
   if (!b || !b->pinned) {
      complain("%s: found %s (%p), expected pinned host memory (cudaMallocHost)", what,
               b ? "device memory" : "pageable memory", address);
      return false;
   }
   return inside(b, address, bytes, what);
}

bool is_device_memory(const void *address)
{
   const struct block *b = block_at(address);
   return b && !b->pinned;
}

bool is_unknown_memory(const void *address)
{
   return !block_at(address);
}

bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
   return (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

static void protect(const struct range *ranges, int n, bool open)
{
   for (int i = 0; i < n; i++) {
      const struct block *b = block_at(ranges[i].address);
      if (!b || b->pinned) continue;
      int access = open ? PROT_READ : PROT_NONE;
      for (int j = 0; open && j < n; j++)
         if (ranges[j].write && block_at(ranges[j].address) == b) access = PROT_READ | PROT_WRITE;
      mprotect(b->mapping + PAGE, b->mapped - 2 * PAGE, access);
   }
}

void open_ranges(const char *operation, const struct range *ranges, int n)
{
   running = operation;
   protect(ranges, n, true);
}

void close_ranges(const struct range *ranges, int n)
{
   protect(ranges, n, false);
   running = NULL;
}
