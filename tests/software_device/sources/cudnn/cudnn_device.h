// SPDX-License-Identifier: MIT
// What the cuDNN files of the strict software device share: arrays, refusals, one convolution job.
#pragma once
#include "device.h"

// A packed array of four dimensions: n, c, h, w of a tensor, or k, c, r, s of a filter
struct array {
   bool set;
   cudnnTensorFormat_t format;
   cudnnDataType_t type;
   int dim[4];
};
struct convolution {
   int pad[2], stride[2], dilation[2], groups; // height, width
   cudnnConvolutionMode_t mode;
   cudnnDataType_t compute;
};
struct cudnnContext {
   struct object object;
   cudaStream_t stream;
};

// --- cudnn_handle.c, arrays.c. The checks below return CUDNN_STATUS_SUCCESS or a status, explained
#define CUDNN_CALL                                                                                                    \
   CALL;                                                                                                              \
   if (call.planted) return (st)call.planted;                                                                         \
   clear_explanation()
#define TRY(CHECK)                                                                                                    \
   do {                                                                                                               \
      st tried = (CHECK);                                                                                             \
      if (tried != CUDNN_STATUS_SUCCESS) return tried;                                                                \
   } while (0)
__attribute__((format(printf, 2, 3))) st refuse(st status, const char *format, ...);
st check_handle(hd h, const char *what);
// Queues work on the handle's stream, or records it
st queue_work(hd h, const char *name, const struct range *ranges, int n, work *run, const void *data, size_t bytes);
size_t type_bytes(cudnnDataType_t type);
size_t array_elements(const struct array *a);
size_t array_bytes(const struct array *a);
st output_shape(const struct convolution *conv, const struct array *x, const struct array *w, int dim[4]);
// The pointer holds the array
st check_data(const struct array *a, const void *address, const char *what);
st check_all_apart(const char *what, const struct range *ranges, int n);

// --- numbers.c: arrays as float64 in NCHW order
double *load_array(const struct array *a, const void *from);
void store_array(const struct array *a, double alpha, const double *values, double beta, void *to);
void round_to_tf32(double *values, size_t n);

// --- convolution_engines.c
enum pass { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };
struct geometry {
   enum pass pass;
   struct array x, w, y;
   struct convolution conv;
};
enum family { NONE, PLAIN, GEMM, FFT, WINOGRAD, WINOGRAD_NONFUSED };
bool family_takes(const struct geometry *g, enum family family);
size_t family_workspace(const struct geometry *g, enum family family);

// --- convolution_math.c
struct convolution_job {
   struct geometry g;
   const void *x, *w, *y; // one of them is the result
   double alpha, beta;
   bool fused, jitter, tf32, relu;
   const void *bias, *mask; // of a fused job, or null; the mask is like the result
   struct array bias_array;
   cudnnNanPropagation_t nan; // of the ReLU
   void *space;
   size_t space_bytes;
};
void run_convolution(void *data);
