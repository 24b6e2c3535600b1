// SPDX-License-Identifier: MIT
// Execution plans and their text, and devices described in JSON.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_graph.h"

// cuDNN 9.19 takes no description without all of them
static const char *const device_keys[] = {
   "maxGridSize", "maxBlockSize", "regsPerBlock", "multiProcessorCount", "warpSize", "maxSharedMemoryPerBlock",
   "maxSharedMemoryPerBlockOptin", "reservedSharedMemoryPerBlock", "maxRegistersPerSM", "maxCtasPerSM",
   "maxThreadsPerBlock", "maxThreadsPerSM", "pciDeviceId", "isTccDriver", "supportCoopLaunch", "smClockRateKHz",
   "memClockRateKHz", "l2CacheSize", "deviceName", "deviceVer", "driverVer", "totalGlobalMem", "cudaDeviceId"};

// The elements as a string, to be freed
static char *text_of(const struct part *part, cudnnBackendAttributeName_t name)
{
   int64_t n;
   const char *elements = elements_of(part, name, &n);
   return elements ? strndup(elements, (size_t)n) : NULL;
}

st finalize_device(struct part *part)
{
   char *json = text_of(part, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), key[64];
   st status = CUDNN_STATUS_SUCCESS;
   for (size_t i = 0; i < sizeof device_keys / sizeof *device_keys && status == CUDNN_STATUS_SUCCESS; i++) {
      snprintf(key, sizeof key, "\"%s\"", device_keys[i]);
      if (!strstr(json, key)) status = refuse(CUDNN_STATUS_BAD_PARAM, "device properties: no %s", key);
   }
   free(json);
   return status;
}

// FNV-1a
static unsigned checksum(const char *text, size_t n)
{
   unsigned sum = 2166136261u;
   for (size_t i = 0; i < n; i++) sum = (sum ^ (unsigned char)text[i]) * 16777619u;
   return sum;
}

_Static_assert(2 * sizeof(struct engine) + 200 < MOST_PLAN_TEXT, "a plan's text has room");

// As cuDNN 9.19 has it, the engine is an object of its own: the same in every process, what is behind it need not be
int64_t plan_text(const struct engine *e, char text[MOST_PLAN_TEXT])
{
   int n = snprintf(text, MOST_PLAN_TEXT,
                    "{\"cudnn\": %d, \"capability\": %d, \"engine\": {\"engineId\": %d}, \"plan\": \"",
                    setting("STRICT_CUDNN_VERSION", 91900), setting("STRICT_CAPABILITY", 90), e->number);
   for (size_t i = 0; i < sizeof *e; i++) n += sprintf(text + n, "%02x", ((const unsigned char *)e)[i]);
   return n + sprintf(text + n, "\", \"checksum\": \"%08x\"}", checksum(text, (size_t)n));
}

// The engine that a text tells of
static st restore(const char *text, struct engine *e)
{
   int version, capability, number, from = 0;
   char end[40];
   size_t all = strlen(text), tail = sizeof "\", \"checksum\": \"01234567\"}" - 1;
   int found = sscanf(text, "{\"cudnn\": %d, \"capability\": %d, \"engine\": {\"engineId\": %d}, \"plan\": \"%n",
                      &version, &capability, &number, &from);
   if (found >= 1 && version != setting("STRICT_CUDNN_VERSION", 91900)) // another version's may be of another form
      return refuse(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, "plan: made by version %d", version);
   if (found != 3 || !from || all != (size_t)from + 2 * sizeof *e + tail)
      return refuse(CUDNN_STATUS_BAD_PARAM, "plan: this is no text of one, or not all of it");
   snprintf(end, sizeof end, "\", \"checksum\": \"%08x\"}", checksum(text, all - tail));
   if (strcmp(text + all - tail, end)) return refuse(CUDNN_STATUS_BAD_PARAM, "plan: the text is damaged");
   if (capability != setting("STRICT_CAPABILITY", 90))
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "plan: made for capability %d", capability);
   for (size_t i = 0; i < sizeof *e; i++) {
      unsigned byte;
      sscanf(text + from + 2 * i, "%2x", &byte);
      ((unsigned char *)e)[i] = (unsigned char)byte;
   }
   return CUDNN_STATUS_SUCCESS;
}

static st restore_set(const struct part *part, struct engine *e)
{
   char *text = text_of(part, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
   st status = restore(text, e);
   free(text);
   return status;
}

st finalize_plan(struct part *part)
{
   if (cuda_failed(capture_forbids_unsafe("cudnnBackendFinalize of a plan")))
      return refuse(CUDNN_STATUS_INTERNAL_ERROR, "plan: a stream captures, and kernels would be loaded");
   struct plan *plan = &part->content->plan;
   const cudnnHandle_t *handle = elements_of(part, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, NULL);
   const struct part *device = part_of(part, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
   const struct part *configuration = part_of(part, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
   bool text = elements_of(part, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, NULL) != NULL;
   if (!handle == !device)
      return refuse(CUDNN_STATUS_BAD_PARAM, "plan: found %s handle and device properties, expected one",
                    handle ? "both" : "neither");
   if (!configuration == !text)
      return refuse(CUDNN_STATUS_BAD_PARAM, "plan: found %s engine configuration and JSON, expected one",
                    text ? "both" : "neither");
   if (text) TRY(restore_set(part, &plan->engine));
   else plan->engine = configuration->content->engine;
   if (!engine_takes(&plan->engine.pattern, plan->engine.number) || !engine_becomes_plan(plan->engine.number))
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "plan: engine %d has none for this graph", plan->engine.number);
   if (!setting("STRICT_PLANS", 1))
      return refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, "plan: no compiler, by STRICT_PLANS");
   if (handle && !context_is_bound()) {
      complain("plan: no context is current to this thread, and kernels would be loaded");
      return refuse(CUDNN_STATUS_INTERNAL_ERROR, "%s", explanation());
   }
   count("plans made", 1);
   if (engine_is_compiled(plan->engine.number)) count("plans compiled", 1);
   plan->has_handle = handle != NULL;
   if (handle) plan->device = (*handle)->object.device;
   return CUDNN_STATUS_SUCCESS;
}
