// SPDX-License-Identifier: MIT
// Queues of work and what they record, for streams.c, events.c, capture.c and graphs.c.
#pragma once
#include <pthread.h>
#include "device.h"

// One operation of a recording: what enqueue was told, with everything but the arrays by value
struct node {
   struct node *next;
   const char *name;
   struct range ranges[MAX_RANGES];
   int n_ranges;
   work *run;
   void *data;
   size_t bytes;
   struct {
      char name[32];
      int64_t by;
   } tallies[2]; // what tally was told
   struct {
      void *object;
      enum object_kind kind;
   } needs[2]; // what needs was told
   int n_tallies, n_needs;
};
// Of a capture, then of graphs and executable graphs, which share it: it is never changed
struct recording {
   struct node *nodes, **end;
   int owners, device;
};
struct recording *recording_new(int device);
void recording_release(struct recording *recording);

struct capture {
   uint64_t id;
   pthread_t thread;
   enum cudaStreamCaptureMode mode;
   bool invalid;
   struct recording *recording;
};

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
struct lane {
   struct op *head, *tail;
   uint64_t issued, done, clock[MAX_LANES];
   int device;
   bool used, blocking, closed;
   struct capture *capture;
};
extern struct lane lanes[MAX_LANES];

struct CUstream_st {
   struct object object;
   int lane;
};
// A place in a lane, and what was certain to be done there
struct mark {
   int lane;
   uint64_t seq, clock[MAX_LANES];
};
struct CUevent_st {
   struct object object;
   bool recorded;
   uint64_t capture; // the id of the capture that it was recorded in, else 0
   struct mark mark;
};

void run_until(int lane, uint64_t seq);
struct mark mark_now(int lane);
void wait_for(int lane, const struct mark *mark);
void capture_append(struct capture *capture, const char *name, const struct range *ranges, int n, work *run,
                    const void *data, size_t bytes);
void forget_appended(void);
// The lane that this capture still goes on in, or -1
int capturing_lane(uint64_t id);
