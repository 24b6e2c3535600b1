// SPDX-License-Identifier: MIT
// Versions, devices, errors and copies of the CUDA runtime.
//
// A fatal status (illegal address, launch failure, ...) stays, as on a device: every later call returns it.
#include <string.h>
#include "device.h"

static __thread cudaError_t last_error;
static cudaError_t fatal;

int device_count(void)
{
   int n = setting("STRICT_DEVICES", 1);
   return n < 0 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : n;
}

static bool is_fatal(cudaError_t status)
{
   return status == cudaErrorECCUncorrectable || (status >= cudaErrorIllegalAddress && status < cudaErrorNotSupported);
}

cudaError_t cuda_failed(cudaError_t status)
{
   if (is_fatal(status)) fatal = status;
   if (status != cudaSuccess) last_error = status;
   return status;
}

cudaError_t cuda_begun(int planted)
{
   if (planted) return cuda_failed((cudaError_t)planted);
   return fatal;
}

static const struct error {
   cudaError_t status;
   const char *name, *text;
} errors[] = {
   {cudaSuccess, "cudaSuccess", "no error"},
   {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
   {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
   {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
   {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
   {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
   {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
   {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
    "CUDA driver version is insufficient for CUDA runtime version"},
   {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
   {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
   {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
   {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
   {cudaErrorInvalidPtx, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
   {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
   {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
   {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
   {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
   {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
   {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
   {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
   {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
    "operation not permitted when stream is capturing"},
   {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
    "operation failed due to a previous error during capture"},
   {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
    "operation would result in a merge of separate capture sequences"},
   {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
    "dependency created on uncaptured work in another stream"},
   {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
    "operation would make the legacy stream depend on a capturing blocking stream"},
   {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
    "operation not permitted on an event last recorded in a capturing stream"},
   {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
    "attempt to terminate a thread-local capture sequence from another thread"},
   {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

static const struct error *find_error(cudaError_t status)
{
   for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
      if (errors[i].status == status) return &errors[i];
   return NULL;
}

const char *cudaGetErrorName(cudaError_t status)
{
   const struct error *error = find_error(status);
   return error ? error->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t status)
{
   const struct error *error = find_error(status);
   return error ? error->text : "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
   CALL;
   cudaError_t status = fatal ? fatal : last_error;
   last_error = cudaSuccess;
   return status;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
   CUDA_CALL;
   if (!version) return cuda_failed(cudaErrorInvalidValue);
   *version = setting("STRICT_CUDART_VERSION", 13000);
   return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
   CUDA_CALL;
   if (!n) return cuda_failed(cudaErrorInvalidValue);
   if (setting("STRICT_DRIVER_VERSION", 13000) / 1000 < setting("STRICT_CUDART_VERSION", 13000) / 1000)
      return cuda_failed(cudaErrorInsufficientDriver);
   *n = device_count();
   return *n ? cudaSuccess : cuda_failed(cudaErrorNoDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
   CUDA_CALL;
   if (!value) return cuda_failed(cudaErrorInvalidValue);
   if (device < 0 || device >= device_count()) return cuda_failed(cudaErrorInvalidDevice);
   switch (attribute) {
   case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
   case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
   case cudaDevAttrMaxGridDimY: *value = 65535; break;
   case cudaDevAttrMaxGridDimZ: *value = 65535; break;
   case cudaDevAttrWarpSize: *value = 32; break;
   case cudaDevAttrMultiProcessorCount: *value = setting("STRICT_MULTIPROCESSORS", 2); break;
   case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
   case cudaDevAttrUnifiedAddressing: *value = 1; break;
   case cudaDevAttrComputeCapabilityMajor: *value = setting("STRICT_CAPABILITY", 90) / 10; break;
   case cudaDevAttrComputeCapabilityMinor: *value = setting("STRICT_CAPABILITY", 90) % 10; break;
   default: complain("cudaDeviceGetAttribute: attribute %d is not in this device", (int)attribute);
      return cuda_failed(cudaErrorInvalidValue);
   }
   return cudaSuccess;
}

struct copy {
   void *to;
   const void *from;
   size_t bytes;
   int value;
};

static void run_copy(void *data)
{
   const struct copy *c = data;
   memmove(c->to, c->from, c->bytes);
}

static void run_set(void *data)
{
   const struct copy *c = data;
   memset(c->to, c->value, c->bytes);
}

static bool side(const void *address, size_t bytes, bool on_device, const char *what)
{
   return on_device ? device_range(address, bytes, current_device, what) : host_range(address, bytes, what);
}

// Stricter than the real one: host memory must be pinned (else the copy is not asynchronous), the sides must be
// those that `kind` says, and they must not overlap
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
   CUDA_CALL;
   if (!stream_usable(stream, "cudaMemcpyAsync")) return cuda_failed(cudaErrorInvalidResourceHandle);
   if (bytes == 0) return cudaSuccess;
   if ((unsigned)kind > cudaMemcpyDefault) return cuda_failed(cudaErrorInvalidMemcpyDirection);
   bool to_device = is_device_memory(to), from_device = is_device_memory(from);
   if (kind != cudaMemcpyDefault) {
      bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
      bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
      if (wants_to != to_device || wants_from != from_device) {
         complain("cudaMemcpyAsync: kind %d, but the copy goes from %s to %s", (int)kind,
                  from_device ? "device" : "host", to_device ? "device" : "host");
         return cuda_failed(cudaErrorInvalidMemcpyDirection);
      }
   }
   int lane = lane_of(stream, current_device);
   if (!side(to, bytes, to_device, "cudaMemcpyAsync: to") || !side(from, bytes, from_device, "cudaMemcpyAsync: from")) {
      bool pageable = is_unknown_memory(to) || is_unknown_memory(from);
      return cuda_failed(pageable && capture_invalidate(lane, call.name) ? cudaErrorStreamCaptureUnsupported
                                                                         : cudaErrorInvalidValue);
   }
   if (overlap(to, bytes, from, bytes)) {
      complain("cudaMemcpyAsync: the two sides overlap");
      return cuda_failed(cudaErrorInvalidValue);
   }
   struct copy copy = {to, from, bytes, 0};
   struct range ranges[] = {{to, bytes, true}, {from, bytes, false}};
   cudaError_t status = enqueue(lane, "cudaMemcpyAsync", ranges, 2, run_copy, &copy, sizeof copy);
   if (status) return cuda_failed(status);
   if (to_device && !from_device) tally("bytes to device", (int64_t)bytes);
   if (from_device && !to_device) tally("bytes to host", (int64_t)bytes);
   return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
   CUDA_CALL;
   if (!stream_usable(stream, "cudaMemsetAsync")) return cuda_failed(cudaErrorInvalidResourceHandle);
   if (bytes == 0) return cudaSuccess;
   if (!device_range(address, bytes, current_device, "cudaMemsetAsync")) return cuda_failed(cudaErrorInvalidValue);
   struct copy copy = {address, NULL, bytes, value};
   struct range range = {address, bytes, true};
   int lane = lane_of(stream, current_device);
   return cuda_failed(enqueue(lane, "cudaMemsetAsync", &range, 1, run_set, &copy, sizeof copy));
}
