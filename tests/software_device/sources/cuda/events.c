// SPDX-License-Identifier: MIT
// Events: marks behind the work of a stream. One that is recorded in a capture marks nothing outside of it.
#include "lanes.h"

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
   CUDA_CALL;
   if (!event || (flags != cudaEventDefault && flags != cudaEventDisableTiming))
      return cuda_failed(cudaErrorInvalidValue);
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   bind_context();
   *event = object_new(AN_EVENT, sizeof **event);
   return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
   CUDA_CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventRecord") || !stream_usable(stream, "cudaEventRecord"))
      return cuda_failed(cudaErrorInvalidResourceHandle);
   if (event->object.device != current_device) {
      complain("cudaEventRecord: event of device %d, stream of device %d", event->object.device, current_device);
      return cuda_failed(cudaErrorInvalidResourceHandle);
   }
   int lane = lane_of(stream, current_device);
   cudaError_t forbidden = capture_forbids_use(lane, call.name);
   if (forbidden) return cuda_failed(forbidden);
   event->recorded = true;
   event->capture = lanes[lane].capture ? lanes[lane].capture->id : 0;
   event->mark = mark_now(lane);
   return cudaSuccess;
}

// A wait that crosses the border of a capture
static cudaError_t crossing(const struct lane *lane, cudaEvent_t event)
{
   int other = event->capture ? capturing_lane(event->capture) : -1;
   if (other >= 0) capture_invalidate(other, "cudaStreamWaitEvent");
   if (lane->capture) capture_invalidate((int)(lane - lanes), "cudaStreamWaitEvent");
   if (lane->capture && event->capture) return cudaErrorStreamCaptureMerge;
   if (!lane->capture && other < 0) {
      complain("cudaStreamWaitEvent: this event was recorded in a capture that has ended");
      return cudaErrorCapturedEvent;
   }
   explain("cudaStreamWaitEvent: %s", lane->capture ? "the event was recorded outside of the capture"
                                                    : "captures of more than one stream are not in this device");
   return cudaErrorStreamCaptureIsolation;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
   CUDA_CALL;
   if (flags != 0) return cuda_failed(cudaErrorInvalidValue);
   if (!object_alive(event, AN_EVENT, "cudaStreamWaitEvent") || !stream_usable(stream, "cudaStreamWaitEvent"))
      return cuda_failed(cudaErrorInvalidResourceHandle);
   int lane = lane_of(stream, current_device);
   cudaError_t forbidden = capture_forbids_use(lane, call.name);
   if (forbidden) return cuda_failed(forbidden);
   if (!event->recorded) {
      complain("cudaStreamWaitEvent: this event was never recorded");
      return cudaSuccess;
   }
   if (event->capture != (lanes[lane].capture ? lanes[lane].capture->id : 0))
      return cuda_failed(crossing(&lanes[lane], event));
   if (event->mark.lane != lane) wait_for(lane, &event->mark);
   return cudaSuccess;
}

// Neither may be asked of an event of a capture, nor while this thread captures
static cudaError_t unanswerable(cudaEvent_t event, const char *what)
{
   if (!event->capture) return capture_forbids_unsafe(what);
   explain("%s: the event was last recorded in a capture", what);
   if (capturing_lane(event->capture) >= 0) capture_invalidate(capturing_lane(event->capture), what);
   return cudaErrorCapturedEvent;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
   CUDA_CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventSynchronize")) return cuda_failed(cudaErrorInvalidResourceHandle);
   cudaError_t refused = unanswerable(event, call.name);
   if (refused) return cuda_failed(refused);
   count("host synchronisations", 1);
   if (event->recorded) run_until(event->mark.lane, event->mark.seq);
   return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
   CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventDestroy")) return cuda_failed(cudaErrorInvalidResourceHandle);
   object_end(event);
   return cuda_begun(call.planted);
}
