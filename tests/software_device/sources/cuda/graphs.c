// SPDX-License-Identifier: MIT
// CUDA graphs: recordings of capture.c that a stream runs again.
//
// A launch queues every operation of the recording as if it were called anew: arrays are looked at again, and what
// was destroyed meanwhile is complained of. Nothing is queued when any of them is refused.
#include <stdio.h>
#include "lanes.h"

struct CUgraph_st {
   struct object object;
   struct recording *recording;
};
struct CUgraphExec_st {
   struct object object;
   struct recording *recording;
   bool launched;
   struct mark last; // the end of its last launch
};

cudaGraph_t graph_new(struct recording *recording)
{
   cudaGraph_t graph = object_new(A_CUDA_GRAPH, sizeof *graph);
   graph->recording = recording;
   return graph;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
   CUDA_UNSAFE_CALL;
   if (!exec || flags & ~(unsigned long long)cudaGraphInstantiateFlagUseNodePriority)
      return cuda_failed(cudaErrorInvalidValue);
   if (!object_alive(graph, A_CUDA_GRAPH, "cudaGraphInstantiate")) return cuda_failed(cudaErrorInvalidValue);
   if (graph->recording->device != current_device) {
      complain("cudaGraphInstantiate: graph of device %d, current device %d", graph->recording->device,
               current_device);
      return cuda_failed(cudaErrorInvalidValue);
   }
   *exec = object_new(A_GRAPH_EXEC, sizeof **exec);
   (*exec)->recording = graph->recording;
   graph->recording->owners++;
   return cudaSuccess;
}

// The executable graph and the stream go together, and neither the stream nor the default stream stands in its way
static cudaError_t launchable(cudaGraphExec_t exec, cudaStream_t stream, const char *what)
{
   if (!object_alive(exec, A_GRAPH_EXEC, what)) return cudaErrorInvalidValue;
   if (!stream_usable(stream, what)) return cudaErrorInvalidResourceHandle;
   if (exec->recording->device != current_device) {
      complain("%s: graph of device %d, current device %d", what, exec->recording->device, current_device);
      return cudaErrorInvalidValue;
   }
   int lane = lane_of(stream, current_device);
   cudaError_t status = capture_forbids_use(lane, what);
   if (status) return status;
   return capture_invalidate(lane, what) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

static bool node_usable(const struct node *node)
{
   for (int i = 0; i < node->n_needs; i++)
      if (!object_alive(node->needs[i].object, node->needs[i].kind, "cudaGraphLaunch: what the graph was made with"))
         return false;
   for (int i = 0; i < node->n_ranges; i++) {
      const struct range *r = &node->ranges[i];
      char what[128];
      snprintf(what, sizeof what, "cudaGraphLaunch: %.90s", node->name);
      if (!(is_device_memory(r->address) ? device_range(r->address, r->bytes, current_device, what)
                                         : host_range(r->address, r->bytes, what)))
         return false;
   }
   return true;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
   CUDA_CALL;
   cudaError_t status = launchable(exec, stream, call.name);
   if (status) return cuda_failed(status);
   for (const struct node *node = exec->recording->nodes; node; node = node->next)
      if (!node_usable(node)) return cuda_failed(cudaErrorInvalidValue);
   int lane = lane_of(stream, current_device);
   if (exec->launched && exec->last.lane != lane) wait_for(lane, &exec->last);
   for (const struct node *node = exec->recording->nodes; node; node = node->next) {
      enqueue(lane, node->name, node->ranges, node->n_ranges, node->run, node->data, node->bytes);
      for (int i = 0; i < node->n_tallies; i++) count(node->tallies[i].name, node->tallies[i].by);
      count("nodes replayed", 1);
   }
   exec->launched = true;
   exec->last = mark_now(lane);
   count("graph launches", 1);
   return cudaSuccess;
}

// What is queued stays queued
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
   CALL;
   if (!object_alive(exec, A_GRAPH_EXEC, "cudaGraphExecDestroy")) return cuda_failed(cudaErrorInvalidValue);
   object_end(exec);
   recording_release(exec->recording);
   return cuda_begun(call.planted);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
   CALL;
   if (!object_alive(graph, A_CUDA_GRAPH, "cudaGraphDestroy")) return cuda_failed(cudaErrorInvalidValue);
   object_end(graph);
   recording_release(graph->recording);
   return cuda_begun(call.planted);
}
