// SPDX-License-Identifier: MIT
// cuDNN's questions about algorithms: workspace sizes, heuristics, trials.
#include <string.h>
#include "cudnn_device.h"

static st space_size(const struct geometry *g, int algo, size_t *bytes)
{
   if (!bytes) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "sizeInBytes == nullptr");
   struct algorithm a = algorithm_for(g, algo);
   if (a.status == CUDNN_STATUS_SUCCESS) *bytes = a.workspace;
   return a.status;
}

st cudnnGetConvolutionForwardWorkspaceSize(hd h, td xd, fd wd, cd conv, td yd, cudnnConvolutionFwdAlgo_t algo,
                                           size_t *bytes)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, FORWARD, h, xd, wd, conv, yd));
   return space_size(&g, (int)algo, bytes);
}

st cudnnGetConvolutionBackwardDataWorkspaceSize(hd h, fd wd, td dyd, cd conv, td dxd,
                                                cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, BACKWARD_DATA, h, dxd, wd, conv, dyd));
   return space_size(&g, (int)algo, bytes);
}

st cudnnGetConvolutionBackwardFilterWorkspaceSize(hd h, td xd, td dyd, cd conv, fd dwd,
                                                  cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, BACKWARD_FILTER, h, xd, dwd, conv, dyd));
   return space_size(&g, (int)algo, bytes);
}

// The three result types have one layout; only the first one's name differs
_Static_assert(sizeof(cudnnConvolutionFwdAlgoPerf_t) == 48 && sizeof(cudnnConvolutionBwdDataAlgoPerf_t) == 48 &&
                  sizeof(cudnnConvolutionBwdFilterAlgoPerf_t) == 48,
               "one layout");

static cudnnConvolutionFwdAlgoPerf_t result(const struct algorithm *a, const struct geometry *g, int place)
{
   cudnnConvolutionFwdAlgoPerf_t perf;
   memset(&perf, 0, sizeof perf);
   perf.algo = (cudnnConvolutionFwdAlgo_t)a->algo;
   perf.status = a->status;
   perf.time = a->status == CUDNN_STATUS_SUCCESS ? 0.01f * (float)(place + 1) : -1.0f;
   perf.memory = a->workspace;
   perf.determinism = a->determinism;
   perf.mathType = g->conv.math;
   return perf;
}

// Those that work, in cuDNN's order, then the others; `room` < 0: no limit (heuristics), else that of a trial
static st list(const struct geometry *g, bool trial, size_t room, int requested, int *returned, void *results)
{
   if (!returned || !results || requested < 1)
      return refuse(CUDNN_STATUS_BAD_PARAM, "requestedAlgoCount %d, or no place for results", requested);
   int n = 0, all = algorithm_count(g->pass);
   for (int good = 1; good >= 0; good--)
      for (int i = 0; i < all; i++) {
         // a trial finds another order than the heuristics
         struct algorithm a = algorithm_for(g, algorithm_order(g->pass, trial ? all - 1 - i : i));
         if (a.status == CUDNN_STATUS_SUCCESS && trial && a.workspace > room)
            a.status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
         if ((a.status == CUDNN_STATUS_SUCCESS) != good || n == requested) continue;
         cudnnConvolutionFwdAlgoPerf_t perf = result(&a, g, n);
         memcpy((char *)results + sizeof perf * (size_t)n++, &perf, sizeof perf);
      }
   *returned = n;
   clear_explanation();
   return CUDNN_STATUS_SUCCESS;
}

st cudnnGetConvolutionForwardAlgorithm_v7(hd h, td xd, fd wd, cd conv, td yd, const int requested, int *returned,
                                          cudnnConvolutionFwdAlgoPerf_t *perf)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, FORWARD, h, xd, wd, conv, yd));
   return list(&g, false, 0, requested, returned, perf);
}

st cudnnGetConvolutionBackwardDataAlgorithm_v7(hd h, fd wd, td dyd, cd conv, td dxd, const int requested, int *returned,
                                               cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, BACKWARD_DATA, h, dxd, wd, conv, dyd));
   return list(&g, false, 0, requested, returned, perf);
}

st cudnnGetConvolutionBackwardFilterAlgorithm_v7(hd h, td xd, td dyd, cd conv, fd dwd, const int requested,
                                                 int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
   CUDNN_CALL;
   struct geometry g;
   TRY(make_geometry(&g, BACKWARD_FILTER, h, xd, dwd, conv, dyd));
   return list(&g, false, 0, requested, returned, perf);
}

// A trial runs what fits into the workspace, overwrites the result, and waits
static st try_all(hd h, const char *name, struct convolution_job *job, void *space, size_t bytes, int requested,
                  int *returned, void *results)
{
   if (cuda_failed(capture_forbids_wait(lane_of(h->stream, current_device), name)))
      return refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "%s: a stream captures, and this call waits", name);
   job->alpha = 1;
   for (int i = 0; i < algorithm_count(job->g.pass); i++) {
      struct convolution_job trial = *job;
      struct algorithm a = algorithm_for(&job->g, i);
      if (a.status == CUDNN_STATUS_SUCCESS && a.workspace <= bytes)
         TRY(submit_convolution(h, name, &trial, i, space, bytes));
   }
   finish_lane(lane_of(h->stream, current_device));
   count("host synchronisations", 1);
   return list(&job->g, true, bytes, requested, returned, results);
}

st cudnnFindConvolutionForwardAlgorithmEx(hd h, td xd, in x, fd wd, in w, cd conv, td yd, out y, const int requested,
                                          int *returned, cudnnConvolutionFwdAlgoPerf_t *perf, out space, size_t bytes)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = x, .w = w, .y = y};
   TRY(make_geometry(&job.g, FORWARD, h, xd, wd, conv, yd));
   return try_all(h, call.name, &job, space, bytes, requested, returned, perf);
}

st cudnnFindConvolutionBackwardDataAlgorithmEx(hd h, fd wd, in w, td dyd, in dy, cd conv, td dxd, out dx,
                                               const int requested, int *returned,
                                               cudnnConvolutionBwdDataAlgoPerf_t *perf, out space, size_t bytes)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = dx, .w = w, .y = dy};
   TRY(make_geometry(&job.g, BACKWARD_DATA, h, dxd, wd, conv, dyd));
   return try_all(h, call.name, &job, space, bytes, requested, returned, perf);
}

st cudnnFindConvolutionBackwardFilterAlgorithmEx(hd h, td xd, in x, td dyd, in dy, cd conv, fd dwd, out dw,
                                                 const int requested, int *returned,
                                                 cudnnConvolutionBwdFilterAlgoPerf_t *perf, out space, size_t bytes)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = x, .w = dw, .y = dy};
   TRY(make_geometry(&job.g, BACKWARD_FILTER, h, xd, dwd, conv, dyd));
   return try_all(h, call.name, &job, space, bytes, requested, returned, perf);
}
