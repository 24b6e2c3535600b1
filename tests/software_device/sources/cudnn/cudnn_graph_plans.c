// SPDX-License-Identifier: MIT
// Execution plans, and devices described in JSON.
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

st finalize_plan(struct part *part)
{
   if (cuda_failed(capture_forbids_unsafe("cudnnBackendFinalize of a plan")))
      return refuse(CUDNN_STATUS_INTERNAL_ERROR, "plan: a stream captures, and kernels would be loaded");
   struct plan *plan = &part->content->plan;
   const cudnnHandle_t *handle = elements_of(part, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, NULL);
   const struct part *device = part_of(part, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
   const struct part *configuration = part_of(part, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
   if (!handle == !device)
      return refuse(CUDNN_STATUS_BAD_PARAM, "plan: found %s handle and device properties, expected one",
                    handle ? "both" : "neither");
   plan->engine = configuration->content->engine;
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
