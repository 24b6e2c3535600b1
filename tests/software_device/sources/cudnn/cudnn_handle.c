// SPDX-License-Identifier: MIT
// cuDNN's handle, versions and errors.
#include <stdarg.h>
#include <stdio.h>
#include "cudnn_device.h"

st refuse(st status, const char *format, ...)
{
   char text[500];
   va_list list;
   va_start(list, format);
   vsnprintf(text, sizeof text, format, list);
   va_end(list);
   explain("%s", text);
   return status;
}

size_t cudnnGetVersion(void)
{
   CALL;
   return (size_t)setting("STRICT_CUDNN_VERSION", 91900);
}

size_t cudnnGetCudartVersion(void)
{
   CALL;
   return (size_t)setting("STRICT_CUDNN_CUDART_VERSION", 13000);
}

const char *cudnnGetErrorString(st status)
{
#define NAME(STATUS) case STATUS: return #STATUS
   switch (status) {
      NAME(CUDNN_STATUS_SUCCESS);
      NAME(CUDNN_STATUS_NOT_INITIALIZED);
      NAME(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
      NAME(CUDNN_STATUS_BAD_PARAM);
      NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
      NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
      NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
      NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
      NAME(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
      NAME(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
      NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
      NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
      NAME(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
      NAME(CUDNN_STATUS_NOT_SUPPORTED);
      NAME(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
      NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
      NAME(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
      NAME(CUDNN_STATUS_INTERNAL_ERROR);
      NAME(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED);
      NAME(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
      NAME(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
      NAME(CUDNN_STATUS_EXECUTION_FAILED);
      NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
   default: return "CUDNN_STATUS_UNKNOWN";
   }
#undef NAME
}

void cudnnGetLastErrorString(char *message, size_t size)
{
   CALL;
   if (message && size > 0) snprintf(message, size, "%s", explanation());
}

st cudnnCreate(cudnnHandle_t *handle)
{
   CUDNN_CALL;
   if (!handle) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle == nullptr");
   if (cuda_failed(capture_forbids_unsafe(call.name)))
      return refuse(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "a stream captures");
   if (current_device >= device_count())
      return refuse(CUDNN_STATUS_NOT_INITIALIZED, "cudaGetDeviceCount(&count) != cudaSuccess");
   bind_context();
   *handle = object_new(A_CUDNN_HANDLE, sizeof **handle);
   return CUDNN_STATUS_SUCCESS;
}

st check_handle(hd h, const char *what)
{
   if (!object_alive(h, A_CUDNN_HANDLE, what)) return CUDNN_STATUS_BAD_PARAM;
   if (h->object.device != current_device) {
      complain("%s: handle of device %d, current device %d", what, h->object.device, current_device);
      return CUDNN_STATUS_BAD_PARAM;
   }
   if (!stream_usable(h->stream, what)) return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
   return CUDNN_STATUS_SUCCESS;
}

// STRICT_CAPTURE: 0, cuDNN cannot be captured, and says so; 2, and does not say so
st queue_work(hd h, const char *name, const struct range *ranges, int n, work *run, const void *data, size_t bytes)
{
   int lane = lane_of(h->stream, current_device), capturable = setting("STRICT_CAPTURE", 1);
   cudaError_t status = cuda_failed(enqueue(lane, name, ranges, n, run, data, bytes));
   if (!status) needs(h, A_CUDNN_HANDLE);
   if (!status && capturable != 1 && capture_invalidate(lane, name) && capturable == 0)
      status = cuda_failed(cudaErrorStreamCaptureUnsupported);
   if (!status) return CUDNN_STATUS_SUCCESS;
   return refuse(CUDNN_STATUS_EXECUTION_FAILED, "%s: %s", name, cudaGetErrorName(status));
}

st cudnnDestroy(hd h)
{
   CALL;
   if (!object_alive(h, A_CUDNN_HANDLE, "cudnnDestroy")) return CUDNN_STATUS_BAD_PARAM;
   bool unsafe = cuda_failed(capture_forbids_unsafe(call.name));
   object_end(h);
   return unsafe ? CUDNN_STATUS_EXECUTION_FAILED_CUDART : (st)call.planted;
}

st cudnnSetStream(hd h, cudaStream_t stream)
{
   CUDNN_CALL;
   if (!object_alive(h, A_CUDNN_HANDLE, "cudnnSetStream")) return CUDNN_STATUS_BAD_PARAM;
   if (!stream_usable(stream, "cudnnSetStream")) return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
   h->stream = stream;
   return CUDNN_STATUS_SUCCESS;
}
