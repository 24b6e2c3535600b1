// SPDX-License-Identifier: MIT
// Stream capture: work of a capturing stream is recorded, not queued.
//
// What would break the recording invalidates it, as CUDA's documentation of cudaStreamBeginCapture and
// cudaThreadExchangeStreamCaptureMode says: waits for the stream, calls that may be unsafe (they allocate, free, load
// or wait, and no graph would repeat them), work on the default stream beside a capturing blocking one. An ordinary
// error does not: a program that overlooks one gets a graph in which that work is missing.
//
// Stricter than the real one: a capture stays in one stream. A second stream that waits for one of its events, which
// would join it, is refused; so is the launch of a graph in a capture.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lanes.h"

static __thread struct node *appended; // by the last enqueue of this thread; null when it queued

struct recording *recording_new(int device)
{
   struct recording *recording = calloc(1, sizeof *recording);
   recording->end = &recording->nodes;
   recording->owners = 1;
   recording->device = device;
   return recording;
}

void recording_release(struct recording *recording)
{
   if (--recording->owners > 0) return;
   appended = NULL;
   for (struct node *node = recording->nodes, *next; node; node = next) {
      next = node->next;
      free(node->data);
      free(node);
   }
   free(recording);
}

void capture_append(struct capture *capture, const char *name, const struct range *ranges, int n, work *run,
                    const void *data, size_t bytes)
{
   struct node *node = calloc(1, sizeof *node);
   node->name = name;
   memcpy(node->ranges, ranges, (size_t)n * sizeof *ranges);
   node->n_ranges = n;
   node->run = run;
   node->data = memcpy(malloc(bytes ? bytes : 1), data, bytes);
   node->bytes = bytes;
   *capture->recording->end = node;
   capture->recording->end = &node->next;
   appended = node;
   count("nodes captured", 1);
}

void forget_appended(void)
{
   appended = NULL;
}

void tally(const char *name, int64_t by)
{
   if (!appended) {
      count(name, by);
      return;
   }
   if (appended->n_tallies == 2) abort();
   snprintf(appended->tallies[appended->n_tallies].name, sizeof appended->tallies[0].name, "%s", name);
   appended->tallies[appended->n_tallies++].by = by;
}

void needs(const void *object, enum object_kind kind)
{
   if (!appended) return;
   if (appended->n_needs == 2) abort();
   appended->needs[appended->n_needs].object = (void *)object;
   appended->needs[appended->n_needs++].kind = kind;
}

int capturing_lane(uint64_t id)
{
   for (int i = 0; i < MAX_LANES; i++)
      if (lanes[i].capture && lanes[i].capture->id == id) return i;
   return -1;
}

int captures_open(void)
{
   int n = 0;
   for (int i = 0; i < MAX_LANES; i++) n += lanes[i].capture != NULL;
   return n;
}

bool is_capturing(int lane)
{
   return lanes[lane].capture != NULL;
}

bool capture_invalidate(int lane, const char *what)
{
   if (!lanes[lane].capture) return false;
   if (!lanes[lane].capture->invalid) explain("%s: this invalidates the capture of the stream", what);
   lanes[lane].capture->invalid = true;
   return true;
}

static int capturing_beside_legacy(int lane)
{
   for (int i = MAX_DEVICES; lane < MAX_DEVICES && i < MAX_LANES; i++)
      if (lanes[i].capture && lanes[i].blocking && lanes[i].device == lane) return i;
   return -1;
}

cudaError_t capture_forbids_use(int lane, const char *what)
{
   if (lanes[lane].capture && lanes[lane].capture->invalid) {
      explain("%s: the capture of this stream was invalidated", what);
      return cudaErrorStreamCaptureInvalidated;
   }
   int other = capturing_beside_legacy(lane);
   if (other < 0) return cudaSuccess;
   capture_invalidate(other, what);
   return cudaErrorStreamCaptureImplicit;
}

cudaError_t capture_forbids_unsafe(const char *what)
{
   cudaError_t status = cudaSuccess;
   for (int i = 0; i < MAX_LANES; i++) {
      struct capture *c = lanes[i].capture;
      if (!c || c->mode == cudaStreamCaptureModeRelaxed) continue;
      if (c->mode == cudaStreamCaptureModeThreadLocal && !pthread_equal(c->thread, pthread_self())) continue;
      capture_invalidate(i, what);
      status = cudaErrorStreamCaptureUnsupported;
   }
   return status;
}

cudaError_t capture_forbids_wait(int lane, const char *what)
{
   if (capture_invalidate(lane, what)) return cudaErrorStreamCaptureUnsupported;
   cudaError_t status = capture_forbids_use(lane, what);
   return status ? status : capture_forbids_unsafe(what);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
   static uint64_t captures;
   CUDA_CALL;
   if ((unsigned)mode > cudaStreamCaptureModeRelaxed) return cuda_failed(cudaErrorInvalidValue);
   if (!stream_usable(stream, "cudaStreamBeginCapture")) return cuda_failed(cudaErrorInvalidResourceHandle);
   int lane = lane_of(stream, current_device);
   if (lane < MAX_DEVICES) {
      explain("cudaStreamBeginCapture: the default stream cannot capture");
      return cuda_failed(cudaErrorStreamCaptureUnsupported);
   }
   if (lanes[lane].capture) {
      explain("cudaStreamBeginCapture: the stream captures already");
      return cuda_failed(cudaErrorIllegalState);
   }
   struct capture *capture = lanes[lane].capture = calloc(1, sizeof *capture);
   capture->id = ++captures;
   capture->thread = pthread_self();
   capture->mode = mode;
   capture->recording = recording_new(current_device);
   return cudaSuccess;
}

// Ends the capture even when the test planted a failure: else nobody could, and the real one does as well
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
   CALL;
   if (!graph) return cuda_failed(cudaErrorInvalidValue);
   *graph = NULL;
   if (!stream_usable(stream, "cudaStreamEndCapture")) return cuda_failed(cudaErrorInvalidResourceHandle);
   struct lane *lane = &lanes[lane_of(stream, current_device)];
   struct capture *capture = lane->capture;
   if (!capture) {
      explain("cudaStreamEndCapture: the stream does not capture");
      return cuda_failed(cudaErrorIllegalState);
   }
   if (capture->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(capture->thread, pthread_self()))
      return cuda_failed(cudaErrorStreamCaptureWrongThread);
   cudaError_t status = cuda_begun(call.planted);
   if (!status && capture->invalid) status = cuda_failed(cudaErrorStreamCaptureInvalidated);
   if (status) recording_release(capture->recording);
   else *graph = graph_new(capture->recording);
   lane->capture = NULL;
   free(capture);
   appended = NULL;
   return status;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
   CUDA_CALL;
   if (!status) return cuda_failed(cudaErrorInvalidValue);
   if (!stream_usable(stream, "cudaStreamIsCapturing")) return cuda_failed(cudaErrorInvalidResourceHandle);
   int lane = lane_of(stream, current_device);
   if (capturing_beside_legacy(lane) >= 0) return cuda_failed(cudaErrorStreamCaptureImplicit);
   const struct capture *capture = lanes[lane].capture;
   *status = !capture ? cudaStreamCaptureStatusNone
             : capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
   return cudaSuccess;
}
