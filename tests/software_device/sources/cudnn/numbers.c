// SPDX-License-Identifier: MIT
// Stored numbers to float64 and back. All arithmetic is done in float64, in NCHW order, and rounded once.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_device.h"

static double load(cudnnDataType_t type, const void *from, size_t i)
{
   switch (type) {
   case CUDNN_DATA_FLOAT: return (double)((const float *)from)[i];
   case CUDNN_DATA_DOUBLE: return ((const double *)from)[i];
   case CUDNN_DATA_HALF: return (double)((const _Float16 *)from)[i];
   default: {
      uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return (double)value;
   }
   }
}

static uint16_t to_bfloat16(float value)
{
   uint32_t bits;
   memcpy(&bits, &value, sizeof bits);
   if (value != value) return (uint16_t)(bits >> 16 | 0x40);
   return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void store(cudnnDataType_t type, void *to, size_t i, double value)
{
   switch (type) {
   case CUDNN_DATA_FLOAT: ((float *)to)[i] = (float)value; break;
   case CUDNN_DATA_DOUBLE: ((double *)to)[i] = value; break;
   case CUDNN_DATA_HALF: ((_Float16 *)to)[i] = (_Float16)(float)value; break;
   default: ((uint16_t *)to)[i] = to_bfloat16((float)value);
   }
}

// Place of element (n, c, h, w) in the stored order
static size_t place(const struct array *a, int n, int c, int pixel)
{
   size_t pixels = (size_t)a->dim[2] * (size_t)a->dim[3], channels = (size_t)a->dim[1];
   if (a->format == CUDNN_TENSOR_NCHW) return ((size_t)n * channels + (size_t)c) * pixels + (size_t)pixel;
   return ((size_t)n * pixels + (size_t)pixel) * channels + (size_t)c;
}

double *load_array(const struct array *a, const void *from)
{
   double *values = malloc(array_elements(a) * sizeof *values);
   size_t i = 0;
   for (int n = 0; n < a->dim[0]; n++)
      for (int c = 0; c < a->dim[1]; c++)
         for (int p = 0; p < a->dim[2] * a->dim[3]; p++) values[i++] = load(a->type, from, place(a, n, c, p));
   return values;
}

void store_array(const struct array *a, double alpha, const double *values, double beta, void *to)
{
   size_t i = 0;
   for (int n = 0; n < a->dim[0]; n++)
      for (int c = 0; c < a->dim[1]; c++)
         for (int p = 0; p < a->dim[2] * a->dim[3]; p++) {
            size_t at = place(a, n, c, p);
            double value = alpha * values[i++];
            if (beta != 0) value += beta * load(a->type, to, at); // beta = 0: the old value is not read
            store(a->type, to, at, value);
         }
}

// Tensor cores read float32 with 10 mantissa bits; ties away from zero (cvt.rna.tf32, PTX ISA reference)
void round_to_tf32(double *values, size_t n)
{
   for (size_t i = 0; i < n; i++) {
      float value = (float)values[i];
      uint32_t bits;
      if (!isfinite(value)) continue;
      memcpy(&bits, &value, sizeof bits);
      bits = (bits + 0x1000) & ~(uint32_t)0x1FFF;
      memcpy(&value, &bits, sizeof value);
      values[i] = (double)value;
   }
}
