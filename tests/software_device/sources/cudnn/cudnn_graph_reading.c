// SPDX-License-Identifier: MIT
// What can be read of a finalized descriptor.
//
// Counts are cuDNN 9.19's: how many elements were given.
#include <stdlib.h>
#include <string.h>
#include "cudnn_graph.h"

// Fill descriptors that the caller made: a heuristic's configurations, or a configuration's engine. As cuDNN has it,
// who makes room for none is told of none
static st fill_parts(const struct part *from, const struct attribute *a, int64_t available, int64_t requested,
                     int64_t *n, void *const *to)
{
   int64_t filled = requested < available ? requested : available;
   for (int64_t i = 0; i < requested; i++) {
      TRY(check_part_kind(to[i], (int)a->low, a->what));
      if (((struct part *)to[i])->finalized)
         return refuse(CUDNN_STATUS_BAD_PARAM, "%s: descriptor %lld is filled already", a->what, (long long)i);
   }
   for (int64_t i = 0; i < filled; i++) {
      struct part *part = to[i];
      part->content = calloc(1, sizeof *part->content);
      part->finalized = true;
      if (from->kind->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
         part->content->engine = from->content->engine;
         continue;
      }
      part->content->engine.pattern = from->content->offers.pattern;
      part->content->engine.number = from->content->offers.numbers[i];
   }
   *n = filled;
   return CUDNN_STATUS_SUCCESS;
}

// What an attribute that can be read is now; `room` holds it if it is not stored as such
static const void *value_of(const struct part *part, cudnnBackendAttributeName_t name, int64_t *n, void *room)
{
   const struct engine *engine = &part->content->engine;
   switch (name) {
   case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: *n = engine_numerical_notes(engine->number, room); return room;
   case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: *n = engine_behavior_notes(engine->number, room); return room;
   case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      *n = 1;
      *(int64_t *)room = engine->number;
      return room;
   case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *n = 1;
      *(int64_t *)room = (int64_t)engine_workspace(&part->content->plan.engine);
      return room;
   default: return elements_of(part, name, n);
   }
}

st cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t requested, int64_t *n, void *elements)
{
   CUDNN_CALL;
   int place;
   int64_t room[8];
   TRY(check_part_alive(descriptor, call.name));
   const struct part *part = descriptor;
   if (!part->finalized)
      return refuse(CUDNN_STATUS_NOT_INITIALIZED, "%s: not finalized, nothing can be read", part->kind->name);
   TRY(look_up(part, name, type, &place));
   const struct attribute *a = &part->kind->attributes[place];
   if (!n) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "elementCount == nullptr");
   if (requested < (a->least == 1 && a->most == 1))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: %s: %lld elements requested", part->kind->name, a->what,
                    (long long)requested);
   if (requested > 0) TRY(check_host(part, a, elements));
   if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
      return fill_parts(part, a, part->content->offers.n, requested, n, elements);
   if (name == CUDNN_ATTR_ENGINECFG_ENGINE) return fill_parts(part, a, 1, requested, n, elements);
   if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR || a->type == CUDNN_TYPE_FLOAT)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: %s is not given back", part->kind->name, a->what);
   int64_t available;
   const void *from = value_of(part, name, &available, room);
   int64_t given = requested < available ? requested : available;
   if (given > 0) memcpy(elements, from, (size_t)given * element_bytes(type));
   *n = given;
   return CUDNN_STATUS_SUCCESS;
}
