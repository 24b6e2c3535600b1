// SPDX-License-Identifier: MIT
// Stream capture and graphs: this device refuses them as yet.
#include "device.h"

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
   CUDA_CALL;
   (void)stream, (void)mode;
   return cuda_failed(cudaErrorNotSupported);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
   CUDA_CALL;
   (void)stream, (void)graph;
   return cuda_failed(cudaErrorNotSupported);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
   CUDA_CALL;
   if (!status || !stream_usable(stream, "cudaStreamIsCapturing")) return cuda_failed(cudaErrorInvalidValue);
   *status = cudaStreamCaptureStatusNone;
   return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
   CUDA_CALL;
   (void)exec, (void)graph, (void)flags;
   return cuda_failed(cudaErrorNotSupported);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
   CUDA_CALL;
   (void)exec, (void)stream;
   return cuda_failed(cudaErrorNotSupported);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
   CUDA_CALL;
   (void)exec, (void)stream;
   return cuda_failed(cudaErrorNotSupported);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
   CUDA_CALL;
   (void)exec;
   return cuda_failed(cudaErrorInvalidValue);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
   CUDA_CALL;
   (void)graph;
   return cuda_failed(cudaErrorInvalidValue);
}
