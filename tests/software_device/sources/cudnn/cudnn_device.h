// SPDX-License-Identifier: MIT
// What the cuDNN files of the strict software device share: descriptors, refusals, one convolution job.
#pragma once
#include "device.h"

// A packed array of four dimensions: n, c, h, w of a tensor, or k, c, r, s of a filter
struct array {
   bool set;
   cudnnTensorFormat_t format;
   cudnnDataType_t type;
   int dim[4];
};
struct cudnnTensorStruct {
   struct object object;
   struct array array;
};
struct cudnnFilterStruct {
   struct object object;
   struct array array;
};
struct convolution {
   bool set;
   int pad[2], stride[2], dilation[2], groups; // height, width
   cudnnConvolutionMode_t mode;
   cudnnDataType_t compute;
   cudnnMathType_t math;
};
struct cudnnConvolutionStruct {
   struct object object;
   struct convolution convolution;
};
struct activation {
   bool set;
   cudnnActivationMode_t mode;
   cudnnNanPropagation_t nan;
   double coef;
};
struct cudnnActivationStruct {
   struct object object;
   struct activation activation;
};
struct cudnnContext {
   struct object object;
   cudaStream_t stream;
};

// --- cudnn_handle.c, cudnn_descriptors.c. The checks below return CUDNN_STATUS_SUCCESS or a status, explained
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
st check_tensor(td d, const char *what);
st check_filter(fd d, const char *what);
st check_convolution(cd d);
st check_activation(const cudnnActivationDescriptor_t d);
size_t type_bytes(cudnnDataType_t type);
size_t array_elements(const struct array *a);
size_t array_bytes(const struct array *a);
bool same_shape(const struct array *a, const struct array *b);
st output_shape(const struct convolution *conv, const struct array *x, const struct array *w, int dim[4]);
// The pointer holds the array; the scalar at a host address, read now
st check_data(const struct array *a, const void *address, const char *what);
st read_scalar(const void *address, cudnnDataType_t type, const char *what, double *value);
st check_apart(const char *what, const void *y, size_t y_bytes, const void *x, size_t x_bytes);
st check_all_apart(const char *what, const struct range *ranges, int n);

// --- numbers.c: arrays as float64 in NCHW order
double *load_array(const struct array *a, const void *from);
void store_array(const struct array *a, double alpha, const double *values, double beta, void *to);
void round_to_tf32(double *values, size_t n);
double activate(const struct activation *a, double x);

// --- convolution_algorithms.c
enum pass { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };
struct geometry {
   enum pass pass;
   struct array x, w, y;
   struct convolution conv;
};
struct algorithm {
   int algo;
   st status;
   size_t workspace;
   cudnnDeterminism_t determinism;
};
st make_geometry(struct geometry *g, enum pass pass, hd h, td x, fd w, cd conv, td y);
struct algorithm algorithm_for(const struct geometry *g, int algo);
int algorithm_count(enum pass pass);
int algorithm_order(enum pass pass, int place);
enum family { NONE, PLAIN, GEMM, FFT, WINOGRAD, WINOGRAD_NONFUSED };
bool family_takes(const struct geometry *g, enum family family);
size_t family_workspace(const struct geometry *g, enum family family);

// --- convolution_math.c
struct convolution_job {
   struct geometry g;
   const void *x, *w, *y; // one of them is the result
   double alpha, beta;
   bool fused, jitter;
   double alpha2;
   const void *z, *bias, *mask; // of a fused job, or null; the mask is like the result
   struct array bias_array;
   struct activation activation;
   void *space;
   size_t space_bytes;
};
void run_convolution(void *data);

// --- cudnn_convolution.c: checks every pointer of the job, then queues it
st submit_convolution(hd h, const char *name, struct convolution_job *job, int algo, void *space, size_t bytes);
