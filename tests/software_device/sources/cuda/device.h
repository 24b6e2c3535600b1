// SPDX-License-Identifier: MIT
// What the files of the strict software device share: calls, memory, objects, streams, complaints.
//
// Every function of the interface starts with CALL: it takes the one lock, counts the call and learns
// whether a test planted a failure. Work is never done in the call, but queued on a lane (a stream's queue).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cudnn_api.h"

enum { MAX_DEVICES = 4, MAX_LANES = 128, MAX_RANGES = 10, MAX_ARGUMENTS = 32 };

// --- faults.c: the lock, counters, planted failures, complaints
struct call {
   const char *name;
   int planted;
};
struct call call_begin(const char *name);
void call_end(struct call *call);
#define CALL __attribute__((cleanup(call_end))) struct call call = call_begin(__func__)
void count(const char *name, int64_t by);
int setting(const char *name, int otherwise);
// explain: the reason of the status that follows. complain: a fault that the real library would not report.
__attribute__((format(printf, 1, 2))) void explain(const char *format, ...);
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
const char *explanation(void);
void clear_explanation(void);

// --- objects.c: handles and descriptors; a destroyed one is remembered, so that its use is recognised
enum object_kind {
   AN_OBJECT,
   A_STREAM,
   AN_EVENT,
   A_MODULE,
   A_KERNEL,
   A_CUDNN_HANDLE,
   A_GRAPH_PART,
   A_CUDA_GRAPH,
   A_GRAPH_EXEC,
   OBJECT_KINDS
};
struct object {
   struct object *next;
   enum object_kind kind;
   bool alive;
   int device;
};
extern const char *const object_names[OBJECT_KINDS];
void *object_new(enum object_kind kind, size_t bytes);
bool object_alive(const void *address, enum object_kind kind, const char *what);
void object_end(void *address);
int objects_alive(enum object_kind kind);

// --- memory.c, access.c: allocations between guard pages, closed except while an operation runs
struct range {
   const void *address;
   size_t bytes;
   bool write;
};
bool device_range(const void *address, size_t bytes, int device, const char *what);
bool host_range(const void *address, size_t bytes, const char *what);
bool is_device_memory(const void *address);
bool is_unknown_memory(const void *address); // pageable, as far as this device can tell
bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes);
void open_ranges(const char *operation, const struct range *ranges, int n);
void close_ranges(const struct range *ranges, int n);
int blocks_alive(bool pinned);

// --- streams.c: lazy queues
typedef void work(void *data);
int lane_of(cudaStream_t stream, int device);
// No error for work that was queued, or recorded where the stream captures
cudaError_t enqueue(int lane, const char *name, const struct range *ranges, int n, work *run, const void *data,
                    size_t bytes);
bool stream_usable(cudaStream_t stream, const char *what);
void finish_lane(int lane);
void finish_device(int device);
bool pending_use(const void *address, size_t bytes);
int pending_operations(void);

// --- capture.c, graphs.c. Those that say what a capture forbids invalidate it, and give the status of the call
bool is_capturing(int lane);
bool capture_invalidate(int lane, const char *what); // false where none is
cudaError_t capture_forbids_use(int lane, const char *what);
cudaError_t capture_forbids_wait(int lane, const char *what); // of the host, for the lane
cudaError_t capture_forbids_unsafe(const char *what); // by which this thread allocates, frees, loads or waits
int captures_open(void);
// Of the work that enqueue just took: what to count each time it is queued, and what must live as long
void tally(const char *name, int64_t by);
void needs(const void *object, enum object_kind kind);
struct recording;
cudaGraph_t graph_new(struct recording *recording);

// --- contexts.c
extern __thread int current_device;
void bind_context(void); // as every call does that needs the device
bool context_is_bound(void);
int contexts_pushed(void);
int contexts_retained(void);

// --- driver.c
CUresult driver_begun(int planted);
#define DRIVER_CALL                                                                                                   \
   CALL;                                                                                                              \
   CUresult begun = driver_begun(call.planted);                                                                       \
   if (begun) return begun

// --- cudart.c
int device_count(void);
cudaError_t cuda_failed(cudaError_t status);
cudaError_t cuda_begun(int planted);
#define CUDA_CALL                                                                                                     \
   CALL;                                                                                                              \
   cudaError_t begun = cuda_begun(call.planted);                                                                      \
   if (begun) return begun
#define CUDA_UNSAFE_CALL                                                                                              \
   CUDA_CALL;                                                                                                         \
   cudaError_t unsafe = capture_forbids_unsafe(call.name);                                                            \
   if (unsafe) return cuda_failed(unsafe)
// A call that frees does so in any case, and then gives the planted or fatal status, as the real ones do

// --- touch.c: runs a kernel, which may touch the allocations of these ranges and no other
void launch_watched(const char *kernel, const unsigned grid[3], const unsigned block[3], void **arguments,
                    const struct range *ranges, int n);
