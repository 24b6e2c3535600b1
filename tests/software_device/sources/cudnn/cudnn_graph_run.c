// SPDX-License-Identifier: MIT
// Execution of plans: the variant pack is checked against the plan, and one operation is queued.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cudnn_graph.h"

enum { SLOW = 3000 }; // microseconds of the host, more than a plan takes on the small images of tests
static const char *const place_names[PLACES] = {"x", "w", "y", "bias", "mask"};

st finalize_pack(struct part *part)
{
   int64_t n, n_pointers;
   const int64_t *ids = elements_of(part, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &n);
   void *const *pointers = elements_of(part, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &n_pointers);
   if (n != n_pointers)
      return refuse(CUDNN_STATUS_BAD_PARAM, "variant pack: %lld unique ids, %lld data pointers", (long long)n,
                    (long long)n_pointers);
   for (int64_t i = 0; i < n; i++) {
      if (!pointers[i])
         return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "variant pack: tensor %lld == nullptr", (long long)ids[i]);
      for (int64_t j = 0; j < i; j++)
         if (ids[i] == ids[j])
            return refuse(CUDNN_STATUS_BAD_PARAM, "variant pack: tensor %lld is in it twice", (long long)ids[i]);
   }
   return CUDNN_STATUS_SUCCESS;
}

// Each tensor of the pattern is in the pack, and nothing else
static st find_data(const struct pattern *p, const struct part *pack, void *data[PLACES])
{
   int64_t n;
   const int64_t *ids = elements_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &n);
   void *const *pointers = elements_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, NULL);
   for (int64_t i = 0; i < n; i++) {
      int found = 0;
      for (int place = 0; place < PLACES; place++) {
         if (!p->at[place].used || p->at[place].id != ids[i]) continue;
         data[place] = pointers[i];
         found++;
      }
      for (int j = 0; j < p->n_virtual; j++)
         if (p->virtual_ids[j] == ids[i])
            return refuse(CUDNN_STATUS_BAD_PARAM, "variant pack: tensor %lld is virtual", (long long)ids[i]);
      if (!found)
         return refuse(CUDNN_STATUS_BAD_PARAM, "variant pack: the plan has no tensor %lld", (long long)ids[i]);
   }
   for (int place = 0; place < PLACES; place++)
      if (p->at[place].used && !data[place])
         return refuse(CUDNN_STATUS_BAD_PARAM, "variant pack: tensor %lld (%s) is missing",
                       (long long)p->at[place].id, place_names[place]);
   return CUDNN_STATUS_SUCCESS;
}

static st check_place(const struct pattern *p, int place, const void *address, struct range *range)
{
   const struct graph_tensor *t = &p->at[place];
   struct array a = array_of(t, CUDNN_TENSOR_NCHW);
   if ((uintptr_t)address % (uintptr_t)t->alignment) {
      complain("%s: %p is not a multiple of %lld", place_names[place], address, (long long)t->alignment);
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
   }
   *range = (struct range){address, array_bytes(&a), place == (int)place_of_result(p)};
   return check_data(&a, address, place_names[place]);
}

static st check_space(void *space, size_t bytes)
{
   if (!bytes) return CUDNN_STATUS_SUCCESS;
   if (!space)
      return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "workspace == nullptr, the plan needs %zu bytes", bytes);
   if ((uintptr_t)space % 16) {
      complain("workspace: %p is not a multiple of 16", space);
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
   }
   return device_range(space, bytes, current_device, "workspace") ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static void run_sum(void *data)
{
   const struct convolution_job *job = data;
   const struct array *a = &job->g.x;
   size_t pixels = (size_t)(a->dim[2] * a->dim[3]);
   if (job->space) memset(job->space, 0xFF, job->space_bytes);
   double *from = load_array(a, job->x), *to = calloc((size_t)a->dim[1], sizeof *to);
   for (size_t i = 0; i < array_elements(a); i++) to[i / pixels % (size_t)a->dim[1]] += from[i];
   store_array(&job->g.y, 1, to, 0, (void *)job->y);
   free(from);
   free(to);
}

static struct convolution_job job_of(const struct engine *e, void *const data[PLACES])
{
   const struct pattern *p = &e->pattern;
   struct convolution_job job = {.g = p->g, .x = data[AT_X], .w = data[AT_W], .y = data[AT_Y], .bias = data[AT_BIAS],
                                 .mask = data[AT_MASK], .bias_array = p->bias, .alpha = p->alpha, .beta = p->beta};
   job.tf32 = engine_uses_tensor_cores(e->number);
   job.jitter = engine_is_random(e->number);
   job.relu = p->relu;
   job.nan = p->nan;
   job.fused = is_fused(p);
   return job;
}

static void count_engine(int number)
{
   char name[32];
   snprintf(name, sizeof name, "graph engine %d", number);
   tally(name, 1);
}

st cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan_part, cudnnBackendDescriptor_t pack)
{
   CUDNN_CALL;
   TRY(check_handle(h, call.name));
   TRY(check_part(plan_part, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "executionPlan"));
   TRY(check_part(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variantPack"));
   const struct plan *plan = &((const struct part *)plan_part)->content->plan;
   const struct pattern *p = &plan->engine.pattern;
   if (!plan->has_handle) return refuse(CUDNN_STATUS_BAD_PARAM, "the plan is for a device that was only described");
   if (plan->device != h->object.device) {
      complain("%s: plan of device %d, handle of device %d", call.name, plan->device, h->object.device);
      return CUDNN_STATUS_BAD_PARAM;
   }
   void *data[PLACES] = {0}, *space = *(void *const *)elements_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL);
   size_t bytes = engine_workspace(&plan->engine);
   struct range ranges[PLACES + 1];
   int n = 0;
   TRY(find_data(p, pack, data));
   for (int place = 0; place < PLACES; place++)
      if (data[place]) TRY(check_place(p, place, data[place], &ranges[n++]));
   TRY(check_space(space, bytes));
   struct convolution_job job = job_of(&plan->engine, data);
   if (bytes) {
      ranges[n++] = (struct range){space, bytes, true};
      job.space = space;
      job.space_bytes = bytes;
   }
   TRY(check_all_apart(call.name, ranges, n));
   TRY(queue_work(h, call.name, ranges, n, p->sum ? run_sum : run_convolution, &job, sizeof job));
   needs(plan_part, A_GRAPH_PART);
   count_engine(plan->engine.number);
   if (setting("STRICT_SLOW_ENGINES", 0) >> plan->engine.number & 1) usleep(SLOW);
   return CUDNN_STATUS_SUCCESS;
}
