// SPDX-License-Identifier: MIT
// The three convolutions, as plain loops over float64 copies in NCHW order.
//
// What the descriptors say is done: the mode (CONVOLUTION flips the filter), the formats, groups, dilation; tensor
// cores round float32 to TF32. The workspace is overwritten with NaN.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_device.h"

static void flip(double *w, const int dim[4])
{
   size_t taps = (size_t)(dim[2] * dim[3]);
   for (size_t i = 0; i < (size_t)(dim[0] * dim[1]); i++)
      for (size_t a = 0, b = taps - 1; a < b; a++, b--) {
         double kept = w[i * taps + a];
         w[i * taps + a] = w[i * taps + b];
         w[i * taps + b] = kept;
      }
}

// Columns q of the output for which x(q*stride - pad + s*dilation) exists
static void columns(const struct geometry *g, int s, int *first, int *last)
{
   int offset = s * g->conv.dilation[1] - g->conv.pad[1], stride = g->conv.stride[1];
   *first = offset < 0 ? (-offset + stride - 1) / stride : 0;
   int end = g->x.dim[3] - 1 - offset;
   *last = end < 0 ? -1 : end / stride;
   if (*last > g->y.dim[3] - 1) *last = g->y.dim[3] - 1;
}

// One filter tap on one row: forward, towards x, or towards w
static void row(enum pass pass, double *x, double *w, double *y, int n, int stride)
{
   double sum = 0, tap = *w;
   if (pass == FORWARD)
      for (int q = 0; q < n; q++) y[q] += tap * x[q * stride];
   else if (pass == BACKWARD_DATA)
      for (int q = 0; q < n; q++) x[q * stride] += tap * y[q];
   else {
      for (int q = 0; q < n; q++) sum += x[q * stride] * y[q];
      *w += sum;
   }
}

// All taps of one filter plane (k, c) on one image
static void plane(const struct geometry *g, double *x, double *w, double *y)
{
   for (int r = 0; r < g->w.dim[2]; r++)
      for (int s = 0; s < g->w.dim[3]; s++) {
         int first, last;
         columns(g, s, &first, &last);
         if (last < first) continue;
         int column = first * g->conv.stride[1] - g->conv.pad[1] + s * g->conv.dilation[1];
         for (int p = 0; p < g->y.dim[2]; p++) {
            int line = p * g->conv.stride[0] - g->conv.pad[0] + r * g->conv.dilation[0];
            if (line < 0 || line >= g->x.dim[2]) continue;
            row(g->pass, x + (size_t)line * (size_t)g->x.dim[3] + column, w + r * g->w.dim[3] + s,
                y + (size_t)p * (size_t)g->y.dim[3] + first, last - first + 1, g->conv.stride[1]);
         }
      }
}

static void convolve(const struct geometry *g, double *x, double *w, double *y)
{
   size_t x_plane = (size_t)(g->x.dim[2] * g->x.dim[3]), y_plane = (size_t)(g->y.dim[2] * g->y.dim[3]);
   int per_group = g->w.dim[0] / g->conv.groups, taps = g->w.dim[2] * g->w.dim[3];
   for (int n = 0; n < g->x.dim[0]; n++)
      for (int k = 0; k < g->w.dim[0]; k++)
         for (int c = 0; c < g->w.dim[1]; c++) {
            int channel = k / per_group * g->w.dim[1] + c;
            plane(g, x + ((size_t)n * (size_t)g->x.dim[1] + (size_t)channel) * x_plane,
                  w + (size_t)(k * g->w.dim[1] + c) * (size_t)taps,
                  y + ((size_t)n * (size_t)g->y.dim[1] + (size_t)k) * y_plane);
         }
}

// relu(alpha*conv + bias), and 0 where a mask is not positive
static void epilogue(const struct convolution_job *job, const struct array *a, double *values)
{
   size_t pixels = (size_t)(a->dim[2] * a->dim[3]), n = array_elements(a);
   double *bias = job->bias ? load_array(&job->bias_array, job->bias) : NULL;
   double *mask = job->mask ? load_array(a, job->mask) : NULL;
   for (size_t i = 0; i < n; i++) {
      double value = job->alpha * values[i];
      if (bias) value += bias[i / pixels % (size_t)a->dim[1]];
      bool zero = job->relu && !(value > 0) && (value == value || job->nan != CUDNN_PROPAGATE_NAN);
      values[i] = zero || (mask && !(mask[i] > 0)) ? 0 : value;
   }
   free(bias);
   free(mask);
}

// A non-deterministic algorithm gives other last bits in every run: here one bit of some elements
static void shake(const struct array *a, void *result)
{
   static unsigned runs;
   runs++;
   size_t n = array_elements(a);
   for (size_t i = runs % 3; i < n; i += 3)
      if (a->type == CUDNN_DATA_FLOAT) ((float *)result)[i] = nextafterf(((float *)result)[i], 0);
      else if (a->type == CUDNN_DATA_DOUBLE) ((double *)result)[i] = nextafter(((double *)result)[i], 0);
}

void run_convolution(void *data)
{
   const struct convolution_job *job = data;
   const struct geometry *g = &job->g;
   const struct array *arrays[] = {&g->y, &g->x, &g->w}; // in the order of enum pass: the results
   const void *addresses[] = {job->y, job->x, job->w};
   double *values[3];
   if (job->space) memset(job->space, 0xFF, job->space_bytes);
   for (int i = 0; i < 3; i++) {
      size_t n = array_elements(arrays[i]);
      values[i] = i == (int)g->pass ? calloc(n, sizeof(double)) : load_array(arrays[i], addresses[i]);
      if (arrays[i]->type == CUDNN_DATA_FLOAT && job->tf32) round_to_tf32(values[i], n);
   }
   bool flipped = g->conv.mode == CUDNN_CONVOLUTION;
   if (flipped && g->pass != BACKWARD_FILTER) flip(values[2], g->w.dim);
   convolve(g, values[1], values[2], values[0]);
   if (flipped && g->pass == BACKWARD_FILTER) flip(values[2], g->w.dim);
   void *result = (void *)addresses[g->pass];
   if (job->fused) epilogue(job, arrays[g->pass], values[g->pass]);
   store_array(arrays[g->pass], job->fused ? 1 : job->alpha, values[g->pass], job->fused ? 0 : job->beta, result);
   if (job->jitter) shake(arrays[g->pass], result);
   for (int i = 0; i < 3; i++) free(values[i]);
}
