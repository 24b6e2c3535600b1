// SPDX-License-Identifier: MIT
// Which device each thread works on, and whether a context of it is current to the thread.
//
// A context takes memory of its device for as long as the process lives. cudaSetDevice makes one and makes it current,
// and so does any call that needs the device; cudaGetDevice does not. What loads kernels by the driver, as cuDNN does for
// its plans, finds no device without one. The driver's stack of contexts changes a thread's device for a while, and
// nothing else: what was current before is so again.
#include "device.h"

enum { DEEPEST = 16 };

struct CUctx_st {
   int device, retained;
};

__thread int current_device;
static __thread bool is_bound;
static __thread int depth;
static __thread struct {
   int device;
   bool is_bound;
} stack[DEEPEST];
static struct CUctx_st primary[MAX_DEVICES];
static bool has_context[MAX_DEVICES];
static int pushed; // of all threads

static void make_context(int device)
{
   if (has_context[device]) return;
   has_context[device] = true;
   count("contexts made", 1);
}

void bind_context(void)
{
   if (current_device >= device_count()) return;
   make_context(current_device);
   is_bound = true;
}

bool context_is_bound(void)
{
   return is_bound;
}

int contexts_pushed(void)
{
   return pushed;
}

int contexts_retained(void)
{
   int n = 0;
   for (int i = 0; i < MAX_DEVICES; i++) n += primary[i].retained;
   return n;
}

cudaError_t cudaSetDevice(int device)
{
   CUDA_CALL;
   if (device_count() == 0) return cuda_failed(cudaErrorNoDevice);
   if (device < 0 || device >= device_count()) return cuda_failed(cudaErrorInvalidDevice);
   current_device = device;
   bind_context();
   return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
   CUDA_CALL;
   if (!device) return cuda_failed(cudaErrorInvalidValue);
   if (device_count() == 0) return cuda_failed(cudaErrorNoDevice);
   *device = current_device;
   return cudaSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
   DRIVER_CALL;
   if (!context) return CUDA_ERROR_INVALID_VALUE;
   if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
   make_context(device);
   primary[device].device = device;
   primary[device].retained++;
   *context = &primary[device];
   return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
   CALL;
   if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
   if (!primary[device].retained) {
      complain("cuDevicePrimaryCtxRelease: more often than it was retained");
      return CUDA_ERROR_INVALID_CONTEXT;
   }
   primary[device].retained--;
   return driver_begun(call.planted);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
   DRIVER_CALL;
   if (!context || context < primary || context >= primary + MAX_DEVICES || !context->retained) {
      complain("cuCtxPushCurrent: this is no context, or one that nobody retains");
      return CUDA_ERROR_INVALID_CONTEXT;
   }
   if (depth == DEEPEST) return CUDA_ERROR_INVALID_VALUE;
   stack[depth].device = current_device;
   stack[depth++].is_bound = is_bound;
   pushed++;
   current_device = context->device;
   is_bound = true;
   return CUDA_SUCCESS;
}

// Does so in any case, and then gives the planted status
CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
   CALL;
   if (!depth) {
      complain("cuCtxPopCurrent: nothing was pushed by this thread");
      return CUDA_ERROR_INVALID_CONTEXT;
   }
   if (context) *context = &primary[current_device];
   current_device = stack[--depth].device;
   is_bound = stack[depth].is_bound;
   pushed--;
   return driver_begun(call.planted);
}
