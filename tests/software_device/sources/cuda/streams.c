// SPDX-License-Identifier: MIT
// Streams are lazy: an operation runs only when the host, or an operation that the host waits for, needs it.
// So a missing synchronisation shows as old or NaN values, always, and not only on a busy machine.
//
// Each stream is a lane: a queue with numbered operations. A lane's clock says, for every other lane, up to
// which operation events make it wait; two queued operations that touch the same bytes, one of them writing,
// in an order that no event fixes, are complained of as a race.
#include <stdlib.h>
#include <string.h>
#include "lanes.h"

struct lane lanes[MAX_LANES];

// Lanes 0 to MAX_DEVICES - 1 are the devices' default streams
int lane_of(cudaStream_t stream, int device)
{
   if ((uintptr_t)stream <= 2) {
      lanes[device].used = lanes[device].blocking = true;
      lanes[device].device = device;
      return device;
   }
   return stream->lane;
}

bool stream_usable(cudaStream_t stream, const char *what)
{
   if ((uintptr_t)stream <= 2) return current_device < device_count();
   if (!object_alive(stream, A_STREAM, what)) return false;
   if (stream->object.device == current_device) return true;
   complain("%s: stream of device %d, current device %d", what, stream->object.device, current_device);
   return false;
}

void run_until(int lane, uint64_t seq)
{
   struct lane *l = &lanes[lane];
   while (l->done < seq && l->head) {
      struct op *op = l->head;
      if (op->run) {
         open_ranges(op->name, op->ranges, op->n_ranges);
         op->run(op->data);
         close_ranges(op->ranges, op->n_ranges);
      } else {
         run_until(op->wait_lane, op->wait_seq);
      }
      l->head = op->next;
      if (!l->head) l->tail = NULL;
      l->done = op->seq;
      free(op->data);
      free(op);
   }
   if (l->closed && !l->head) l->used = l->closed = false;
}

void finish_lane(int lane)
{
   run_until(lane, lanes[lane].issued);
}

void finish_device(int device)
{
   for (int i = 0; i < MAX_LANES; i++)
      if (lanes[i].used && lanes[i].device == device) finish_lane(i);
}

static bool conflict(const struct op *a, const struct op *b)
{
   for (int i = 0; i < a->n_ranges; i++)
      for (int j = 0; j < b->n_ranges; j++) {
         const struct range *r = &a->ranges[i], *s = &b->ranges[j];
         if ((r->write || s->write) && overlap(r->address, r->bytes, s->address, s->bytes)) return true;
      }
   return false;
}

static void push(int lane, struct op *op)
{
   struct lane *l = &lanes[lane];
   op->seq = ++l->issued;
   l->clock[lane] = op->seq;
   if (l->tail) l->tail->next = op;
   else l->head = op;
   l->tail = op;
}

struct mark mark_now(int lane)
{
   struct mark mark = {.lane = lane, .seq = lanes[lane].issued};
   memcpy(mark.clock, lanes[lane].clock, sizeof mark.clock);
   return mark;
}

void wait_for(int lane, const struct mark *mark)
{
   struct op *op = calloc(1, sizeof *op);
   op->name = "wait";
   op->wait_lane = mark->lane;
   op->wait_seq = mark->seq;
   push(lane, op);
   uint64_t *clock = lanes[lane].clock;
   for (int i = 0; i < MAX_LANES; i++)
      if (i != lane && mark->clock[i] > clock[i]) clock[i] = mark->clock[i];
   if (mark->seq > clock[mark->lane]) clock[mark->lane] = mark->seq;
}

// The default stream and blocking streams of one device wait for each other
static void legacy_order(int lane)
{
   int device = lanes[lane].device;
   if (!lanes[lane].blocking) return;
   for (int i = 0; i < MAX_LANES; i++) {
      bool ordered = i != lane && lanes[i].used && lanes[i].blocking && lanes[i].device == device && lanes[i].head;
      if (!ordered || (lane >= MAX_DEVICES && i >= MAX_DEVICES)) continue;
      struct mark mark = mark_now(i);
      wait_for(lane, &mark);
   }
}

cudaError_t enqueue(int lane, const char *name, const struct range *ranges, int n, work *run, const void *data,
                    size_t bytes)
{
   forget_appended();
   bind_context();
   cudaError_t forbidden = capture_forbids_use(lane, name);
   if (forbidden) return forbidden;
   if (lanes[lane].capture) {
      capture_append(lanes[lane].capture, name, ranges, n, run, data, bytes);
      return cudaSuccess;
   }
   if (lane < MAX_DEVICES) count("default stream operations", 1);
   count("operations", 1);
   legacy_order(lane);
   struct op *op = calloc(1, sizeof *op);
   op->name = name;
   memcpy(op->ranges, ranges, (size_t)n * sizeof *ranges);
   op->n_ranges = n;
   op->run = run;
   op->data = memcpy(malloc(bytes ? bytes : 1), data, bytes);
   for (int i = 0; i < MAX_LANES; i++)
      for (const struct op *other = i == lane ? NULL : lanes[i].head; other; other = other->next)
         if (other->seq > lanes[lane].clock[i] && conflict(op, other))
            complain("race: %s and %s touch the same memory from two streams, and no event orders them", other->name,
                     name);
   push(lane, op);
   return cudaSuccess;
}

bool pending_use(const void *address, size_t bytes)
{
   for (int i = 0; i < MAX_LANES; i++)
      for (const struct op *op = lanes[i].head; op; op = op->next)
         for (int j = 0; j < op->n_ranges; j++)
            if (overlap(address, bytes, op->ranges[j].address, op->ranges[j].bytes)) return true;
   return false;
}

int pending_operations(void)
{
   int n = 0;
   for (int i = 0; i < MAX_LANES; i++)
      for (const struct op *op = lanes[i].head; op; op = op->next) n += op->run != NULL;
   return n;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
   CUDA_CALL;
   if (!stream || flags > cudaStreamNonBlocking) return cuda_failed(cudaErrorInvalidValue);
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   bind_context();
   int lane = MAX_DEVICES;
   while (lane < MAX_LANES && (lanes[lane].used || lanes[lane].head)) lane++;
   if (lane == MAX_LANES) return cuda_failed(cudaErrorMemoryAllocation);
   *stream = object_new(A_STREAM, sizeof **stream);
   (*stream)->lane = lane;
   lanes[lane].used = true;
   lanes[lane].blocking = flags == cudaStreamDefault;
   lanes[lane].device = current_device;
   return cudaSuccess;
}

// What is queued stays queued, as on a real device: destroying a stream is no synchronisation
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
   CALL;
   if (!object_alive(stream, A_STREAM, "cudaStreamDestroy")) return cuda_failed(cudaErrorInvalidResourceHandle);
   if (capture_invalidate(stream->lane, call.name)) {
      complain("cudaStreamDestroy: the stream captures, and was not destroyed");
      return cuda_failed(cudaErrorStreamCaptureUnsupported);
   }
   object_end(stream);
   lanes[stream->lane].closed = true;
   run_until(stream->lane, 0); // runs nothing; gives the lane back when it is empty
   return cuda_begun(call.planted);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
   CUDA_CALL;
   if (!stream_usable(stream, "cudaStreamSynchronize")) return cuda_failed(cudaErrorInvalidResourceHandle);
   int lane = lane_of(stream, current_device);
   cudaError_t forbidden = capture_forbids_wait(lane, call.name);
   if (forbidden) return cuda_failed(forbidden);
   bind_context();
   count("host synchronisations", 1);
   legacy_order(lane);
   finish_lane(lane);
   return cudaSuccess;
}
