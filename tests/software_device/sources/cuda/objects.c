// SPDX-License-Identifier: MIT
// Handles and descriptors. Destroyed ones stay in the list: their memory is never used again, so a stale
// handle is told from a foreign one and from a handle of another kind.
#include <stdlib.h>
#include "device.h"

const char *const object_names[OBJECT_KINDS] = {
   "object", "stream", "event", "module", "kernel", "cuDNN handle", "graph descriptor", "CUDA graph",
   "executable CUDA graph"};

static struct object *objects;

void *object_new(enum object_kind kind, size_t bytes)
{
   struct object *object = calloc(1, bytes);
   if (!object) abort();
   object->kind = kind;
   object->alive = true;
   object->device = current_device;
   object->next = objects;
   objects = object;
   return object;
}

bool object_alive(const void *address, enum object_kind kind, const char *what)
{
   if (!address) {
      explain("%s: found a null pointer, expected a %s", what, object_names[kind]);
      return false;
   }
   for (struct object **link = &objects; *link; link = &(*link)->next) {
      struct object *object = *link;
      if (object != address) continue;
      *link = object->next; // to the front: programs come back to few of many
      object->next = objects;
      objects = object;
      if (object->kind != kind)
         complain("%s: found a %s, expected a %s", what, object_names[object->kind], object_names[kind]);
      else if (!object->alive)
         complain("%s: this %s was destroyed", what, object_names[kind]);
      return object->kind == kind && object->alive;
   }
   complain("%s: %p is no %s", what, address, object_names[kind]);
   return false;
}

void object_end(void *address)
{
   ((struct object *)address)->alive = false;
}

int objects_alive(enum object_kind kind)
{
   int n = 0;
   for (const struct object *object = objects; object; object = object->next)
      n += object->alive && object->kind == kind;
   return n;
}
