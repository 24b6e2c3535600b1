// SPDX-License-Identifier: MIT
// Streams are lazy: an operation runs only when the host, or an operation that the host waits for, needs it.
// So a missing synchronisation shows as old or NaN values, always, and not only on a busy machine.
//
// Each stream is a lane: a queue with numbered operations. A lane's clock says, for every other lane, up to
// which operation events make it wait; two queued operations that touch the same bytes, one of them writing,
// in an order that no event fixes, are complained of as a race.
#include <stdlib.h>
#include <string.h>
#include "device.h"

struct op {
   struct op *next;
   const char *name;
   struct range ranges[MAX_RANGES];
   int n_ranges;
   work *run; // null: waits for wait_seq on wait_lane
   int wait_lane;
   uint64_t seq, wait_seq;
   void *data;
};
static struct lane {
   struct op *head, *tail;
   uint64_t issued, done, clock[MAX_LANES];
   int device;
   bool used, blocking, closed;
} lanes[MAX_LANES];

struct CUstream_st {
   struct object object;
   int lane;
};
struct CUevent_st {
   struct object object;
   bool recorded;
   int lane;
   uint64_t seq, clock[MAX_LANES];
};

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

static void run_until(int lane, uint64_t seq)
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

static void wait_for(int lane, int other, uint64_t seq, const uint64_t *clock)
{
   struct op *op = calloc(1, sizeof *op);
   op->name = "wait";
   op->wait_lane = other;
   op->wait_seq = seq;
   push(lane, op);
   for (int i = 0; i < MAX_LANES; i++)
      if (i != lane && clock[i] > lanes[lane].clock[i]) lanes[lane].clock[i] = clock[i];
   if (seq > lanes[lane].clock[other]) lanes[lane].clock[other] = seq;
}

// The default stream and blocking streams of one device wait for each other
static void legacy_order(int lane)
{
   int device = lanes[lane].device;
   if (!lanes[lane].blocking) return;
   for (int i = 0; i < MAX_LANES; i++) {
      bool ordered = i != lane && lanes[i].used && lanes[i].blocking && lanes[i].device == device && lanes[i].head;
      if (ordered && (lane < MAX_DEVICES || i < MAX_DEVICES)) wait_for(lane, i, lanes[i].issued, lanes[i].clock);
   }
}

bool enqueue(int lane, const char *name, const struct range *ranges, int n, work *run, const void *data, size_t bytes)
{
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
   return true;
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
   object_end(stream);
   lanes[stream->lane].closed = true;
   run_until(stream->lane, 0); // runs nothing; gives the lane back when it is empty
   return cuda_begun(call.planted);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
   CUDA_CALL;
   count("host synchronisations", 1);
   if (!stream_usable(stream, "cudaStreamSynchronize")) return cuda_failed(cudaErrorInvalidResourceHandle);
   int lane = lane_of(stream, current_device);
   legacy_order(lane);
   finish_lane(lane);
   return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
   CUDA_CALL;
   if (!event || (flags != cudaEventDefault && flags != cudaEventDisableTiming))
      return cuda_failed(cudaErrorInvalidValue);
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
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
   event->recorded = true;
   event->lane = lane_of(stream, current_device);
   event->seq = lanes[event->lane].issued;
   memcpy(event->clock, lanes[event->lane].clock, sizeof event->clock);
   return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
   CUDA_CALL;
   if (flags != 0) return cuda_failed(cudaErrorInvalidValue);
   if (!object_alive(event, AN_EVENT, "cudaStreamWaitEvent") || !stream_usable(stream, "cudaStreamWaitEvent"))
      return cuda_failed(cudaErrorInvalidResourceHandle);
   if (!event->recorded) complain("cudaStreamWaitEvent: this event was never recorded");
   else if (event->lane != lane_of(stream, current_device))
      wait_for(lane_of(stream, current_device), event->lane, event->seq, event->clock);
   return cudaSuccess;
}

// Time passes while a program asks: one more operation runs
cudaError_t cudaEventQuery(cudaEvent_t event)
{
   CUDA_CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventQuery")) return cuda_failed(cudaErrorInvalidResourceHandle);
   if (!event->recorded || lanes[event->lane].done >= event->seq) return cudaSuccess;
   run_until(event->lane, lanes[event->lane].done + 1);
   return cuda_failed(cudaErrorNotReady); // no failure, but cudaGetLastError gives it
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
   CUDA_CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventSynchronize")) return cuda_failed(cudaErrorInvalidResourceHandle);
   count("host synchronisations", 1);
   if (event->recorded) run_until(event->lane, event->seq);
   return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
   CALL;
   if (!object_alive(event, AN_EVENT, "cudaEventDestroy")) return cuda_failed(cudaErrorInvalidResourceHandle);
   object_end(event);
   return cuda_begun(call.planted);
}
