// SPDX-License-Identifier: MIT
// cuBLAS: dot, axpy, scal. In host pointer mode dot writes to the host and so waits; otherwise nothing waits.
#include <stdlib.h>
#include "device.h"

struct cublasContext {
   struct object object;
   cudaStream_t stream;
   cublasPointerMode_t mode;
};

struct job {
   cublasHandle_t handle;
   int64_t n, incx, incy;
   const void *x;
   void *y, *result;
   const void *device_alpha;
   double alpha;
   size_t size;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
   CALL;
   if (call.planted) return (cublasStatus_t)call.planted;
   if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
   if (cuda_failed(capture_forbids_unsafe(call.name))) return CUBLAS_STATUS_ALLOC_FAILED;
   if (current_device >= device_count()) return CUBLAS_STATUS_NOT_INITIALIZED;
   *handle = object_new(A_CUBLAS_HANDLE, sizeof **handle);
   return CUBLAS_STATUS_SUCCESS;
}

static bool usable(cublasHandle_t handle, const char *what)
{
   if (!object_alive(handle, A_CUBLAS_HANDLE, what)) return false;
   if (handle->object.device == current_device) return true;
   complain("%s: handle of device %d, current device %d", what, handle->object.device, current_device);
   return false;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
   CALL;
   if (!object_alive(handle, A_CUBLAS_HANDLE, "cublasDestroy")) return CUBLAS_STATUS_NOT_INITIALIZED;
   bool unsafe = cuda_failed(capture_forbids_unsafe(call.name));
   object_end(handle);
   return unsafe ? CUBLAS_STATUS_INTERNAL_ERROR : (cublasStatus_t)call.planted;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
   CALL;
   if (call.planted) return (cublasStatus_t)call.planted;
   if (!usable(handle, "cublasSetStream")) return CUBLAS_STATUS_NOT_INITIALIZED;
   if (!stream_usable(stream, "cublasSetStream")) return CUBLAS_STATUS_INVALID_VALUE;
   handle->stream = stream;
   return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
   CALL;
   if (call.planted) return (cublasStatus_t)call.planted;
   if (!usable(handle, "cublasSetPointerMode")) return CUBLAS_STATUS_NOT_INITIALIZED;
   if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_INVALID_VALUE;
   handle->mode = mode;
   return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
   CALL;
   if (call.planted) return (cublasStatus_t)call.planted;
   if (!usable(handle, "cublasGetVersion")) return CUBLAS_STATUS_NOT_INITIALIZED;
   if (!version) return CUBLAS_STATUS_INVALID_VALUE;
   *version = setting("STRICT_CUBLAS_VERSION", 130100);
   return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
   switch (status) {
   case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
   case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
   case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
   case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
   case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
   case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
   case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
   case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
   case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
   case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
   default: return "unknown cuBLAS status";
   }
}

static double get(const void *x, int64_t i, size_t size)
{
   return size == 4 ? ((const float *)x)[i] : ((const double *)x)[i];
}

static void set(void *x, int64_t i, size_t size, double value)
{
   if (size == 4) ((float *)x)[i] = (float)value;
   else ((double *)x)[i] = value;
}

static void run_dot(void *data)
{
   const struct job *j = data;
   double sum = 0;
   for (int64_t i = 0; i < j->n; i++) sum += get(j->x, i * j->incx, j->size) * get(j->y, i * j->incy, j->size);
   set(j->result, 0, j->size, sum);
}

static double alpha_of(const struct job *j)
{
   return j->device_alpha ? get(j->device_alpha, 0, j->size) : j->alpha;
}

static void run_axpy(void *data)
{
   const struct job *j = data;
   double alpha = alpha_of(j);
   for (int64_t i = 0; i < j->n; i++)
      set(j->y, i * j->incy, j->size, alpha * get(j->x, i * j->incx, j->size) + get(j->y, i * j->incy, j->size));
}

static void run_scal(void *data)
{
   const struct job *j = data;
   double alpha = alpha_of(j);
   for (int64_t i = 0; i < j->n; i++) set(j->y, i * j->incy, j->size, alpha * get(j->y, i * j->incy, j->size));
}

static bool vector(const char *name, const void *x, int64_t n, int64_t inc, size_t size, bool write,
                   struct range *ranges, int *n_ranges)
{
   size_t bytes = (size_t)((n - 1) * inc + 1) * size;
   ranges[(*n_ranges)++] = (struct range){x, bytes, write};
   if ((uintptr_t)x % size == 0 && device_range(x, bytes, current_device, name)) return true;
   return false;
}

static cublasStatus_t queue(const char *name, struct job *j, const void *alpha, work *run)
{
   struct range ranges[4];
   int n = 0;
   bool host = j->handle->mode == CUBLAS_POINTER_MODE_HOST, dot = run == run_dot;
   if (!stream_usable(j->handle->stream, name)) return CUBLAS_STATUS_INVALID_VALUE;
   if (j->incx < 1 || j->incy < 1) return CUBLAS_STATUS_NOT_SUPPORTED; // the project has no use for strides below one
   const void *scalar = dot ? j->result : alpha;
   if (!scalar) return CUBLAS_STATUS_INVALID_VALUE;
   if (host == is_device_memory(scalar)) {
      complain("%s: pointer mode %s, but the scalar is in %s memory", name, host ? "host" : "device",
               host ? "device" : "host");
      return CUBLAS_STATUS_INVALID_VALUE;
   }
   if (!host) j->device_alpha = dot ? NULL : alpha;
   else if (!dot) j->alpha = get(alpha, 0, j->size);
   if (!host && !vector(name, scalar, 1, 1, j->size, dot, ranges, &n)) return CUBLAS_STATUS_INVALID_VALUE;
   if (j->n > 0 && j->x && !vector(name, j->x, j->n, j->incx, j->size, false, ranges, &n))
      return CUBLAS_STATUS_INVALID_VALUE;
   if (j->n > 0 && !vector(name, j->y, j->n, j->incy, j->size, !dot, ranges, &n)) return CUBLAS_STATUS_INVALID_VALUE;
   int lane = lane_of(j->handle->stream, current_device);
   if (host && dot && cuda_failed(capture_forbids_wait(lane, name))) return CUBLAS_STATUS_EXECUTION_FAILED;
   if (cuda_failed(enqueue(lane, name, ranges, n, run, j, sizeof *j))) return CUBLAS_STATUS_EXECUTION_FAILED;
   needs(j->handle, A_CUBLAS_HANDLE);
   if (host && dot) {
      count("host synchronisations", 1);
      finish_lane(lane);
   }
   return CUBLAS_STATUS_SUCCESS;
}

#define BLAS(NAME, JOB, ALPHA, RUN)                                                                                   \
   {                                                                                                                  \
      CALL;                                                                                                           \
      if (call.planted) return (cublasStatus_t)call.planted;                                                          \
      if (!usable(handle, NAME)) return CUBLAS_STATUS_NOT_INITIALIZED;                                                \
      struct job job = JOB;                                                                                           \
      return queue(NAME, &job, ALPHA, RUN);                                                                           \
   }
#define DOT                                                                                                           \
   {.handle = handle, .n = n, .x = x, .incx = incx, .y = (void *)y, .incy = incy, .result = result, .size = sizeof *x}
#define AXPY {.handle = handle, .n = n, .x = x, .incx = incx, .y = y, .incy = incy, .size = sizeof *x}
#define SCAL {.handle = handle, .n = n, .incx = 1, .y = x, .incy = incx, .size = sizeof *x}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y, int incy,
                             float *result) BLAS("cublasSdot", DOT, NULL, run_dot)
cublasStatus_t cublasDdot_v2(cublasHandle_t handle, int n, const double *x, int incx, const double *y, int incy,
                             double *result) BLAS("cublasDdot", DOT, NULL, run_dot)
cublasStatus_t cublasSaxpy_v2(cublasHandle_t handle, int n, const float *alpha, const float *x, int incx, float *y,
                              int incy) BLAS("cublasSaxpy", AXPY, alpha, run_axpy)
cublasStatus_t cublasDaxpy_v2(cublasHandle_t handle, int n, const double *alpha, const double *x, int incx, double *y,
                              int incy) BLAS("cublasDaxpy", AXPY, alpha, run_axpy)
cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha, float *x, int incx)
   BLAS("cublasSscal", SCAL, alpha, run_scal)
cublasStatus_t cublasDscal_v2(cublasHandle_t handle, int n, const double *alpha, double *x, int incx)
   BLAS("cublasDscal", SCAL, alpha, run_scal)
