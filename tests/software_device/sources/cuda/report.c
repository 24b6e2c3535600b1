// SPDX-License-Identifier: MIT
// What is alive, and what was complained of.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device.h"
#include "strict.h"

enum { KEPT = 50 };
static char *complaints[KEPT];
static int n_complaints;

void report_add(const char *complaint)
{
   if (n_complaints < KEPT) complaints[n_complaints] = strdup(complaint);
   n_complaints++;
}

void strict_forget(void)
{
   n_complaints = 0;
}

static int64_t line(char *text, int64_t size, int64_t amount, const char *what)
{
   size_t used = strlen(text);
   if (amount > 0 && (int64_t)used < size)
      snprintf(text + used, (size_t)size - used, "%lld %s\n", (long long)amount, what);
   return amount;
}

int64_t strict_report(char *text, int64_t size)
{
   char none[1] = "", what[64];
   if (!text || size < 1) {
      text = none;
      size = 1;
   }
   text[0] = 0;
   int64_t total = line(text, size, blocks_alive(false), "device allocations alive");
   total += line(text, size, blocks_alive(true), "pinned host allocations alive");
   for (int kind = A_STREAM; kind < OBJECT_KINDS; kind++) {
      if (kind == A_KERNEL) continue; // ends with its library
      snprintf(what, sizeof what, "%s alive", object_names[kind]);
      total += line(text, size, objects_alive((enum object_kind)kind), what);
   }
   total += line(text, size, contexts_pushed(), "contexts pushed and never popped");
   total += line(text, size, contexts_retained(), "contexts retained");
   total += line(text, size, captures_open(), "captures never ended");
   total += line(text, size, pending_operations(), "operations queued and never waited for");
   total += line(text, size, n_complaints, "complaints:");
   for (int i = 0; i < n_complaints && i < KEPT; i++) {
      size_t used = strlen(text);
      if ((int64_t)used < size) snprintf(text + used, (size_t)size - used, "  %s\n", complaints[i]);
   }
   return total;
}

__attribute__((destructor)) static void at_exit(void)
{
   int level = setting("STRICT_AT_EXIT", 0);
   static char text[8192];
   if (!level || strict_report(text, sizeof text) == 0) return;
   if (level == 1 && n_complaints + pending_operations() == 0) return; // what is alive goes with the process
   fprintf(stderr, "strict device: at exit:\n%s", text);
   fflush(NULL);
   _exit(99);
}
