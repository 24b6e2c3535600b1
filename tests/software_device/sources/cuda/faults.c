// SPDX-License-Identifier: MIT
// The lock, call counters, planted failures and complaints of the strict software device.
//
// STRICT_FAIL="cudaMalloc:2:2,cudnnCreate:1:4000" plants failures from outside: function, which call
// (0: every one), status. strict_fail does the same from a test that runs in this process.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device.h"
#include "strict.h"

enum { MAX_COUNTERS = 256, MAX_PLANTS = 64, REASON = 600 };

static struct counter {
   char name[64];
   int64_t value;
} counters[MAX_COUNTERS];
static struct plant {
   char name[64];
   int64_t at;
   int status;
} plants[MAX_PLANTS];
static int n_counters, n_plants;
static pthread_mutex_t lock;
static __thread char reason[REASON];

static void plant(const char *name, int64_t at, int status)
{
   if (n_plants == MAX_PLANTS) abort();
   snprintf(plants[n_plants].name, sizeof plants[0].name, "%s", name);
   plants[n_plants].at = at;
   plants[n_plants++].status = status;
}

__attribute__((constructor)) static void start(void)
{
   pthread_mutexattr_t recursive;
   pthread_mutexattr_init(&recursive);
   pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
   pthread_mutex_init(&lock, &recursive);
   const char *text = getenv("STRICT_FAIL");
   while (text && *text) {
      char name[64];
      long at;
      int status, used = 0;
      if (sscanf(text, "%63[^:]:%ld:%d%n", name, &at, &status, &used) != 3) {
         fprintf(stderr, "strict device: STRICT_FAIL: found \"%s\", expected FUNCTION:CALL:STATUS\n", text);
         abort();
      }
      plant(name, at, status);
      text += used;
      if (*text == ',') text++;
   }
}

static struct counter *counter(const char *name)
{
   for (int i = 0; i < n_counters; i++)
      if (!strcmp(counters[i].name, name)) return &counters[i];
   if (n_counters == MAX_COUNTERS) abort();
   snprintf(counters[n_counters].name, sizeof counters[0].name, "%s", name);
   return &counters[n_counters++];
}

void count(const char *name, int64_t by)
{
   counter(name)->value += by;
}

struct call call_begin(const char *name)
{
   pthread_mutex_lock(&lock);
   struct call call = {name, 0};
   int64_t calls = ++counter(name)->value;
   for (int i = 0; i < n_plants; i++)
      if (!strcmp(plants[i].name, name) && (plants[i].at == 0 || plants[i].at == calls)) {
         call.planted = plants[i].status;
         explain("%s: failure planted by the test", name);
      }
   return call;
}

void call_end(struct call *call)
{
   (void)call;
   pthread_mutex_unlock(&lock);
}

int setting(const char *name, int otherwise)
{
   const char *text = getenv(name);
   return text && *text ? atoi(text) : otherwise;
}

void explain(const char *format, ...)
{
   va_list list;
   va_start(list, format);
   vsnprintf(reason, sizeof reason, format, list);
   va_end(list);
}

void complain(const char *format, ...)
{
   va_list list;
   va_start(list, format);
   vsnprintf(reason, sizeof reason, format, list);
   va_end(list);
   fprintf(stderr, "strict device: %s\n", reason);
   report_add(reason);
   count("complaints", 1);
}

const char *explanation(void)
{
   return reason;
}

void clear_explanation(void)
{
   reason[0] = 0;
}

int64_t strict_counter(const char *name)
{
   pthread_mutex_lock(&lock);
   int64_t value = counter(name)->value;
   pthread_mutex_unlock(&lock);
   return value;
}

void strict_fail(const char *name, int64_t from_now, int status)
{
   pthread_mutex_lock(&lock);
   if (!name) n_plants = 0;
   else plant(name, from_now ? counter(name)->value + from_now : 0, status);
   pthread_mutex_unlock(&lock);
}
