// SPDX-License-Identifier: MIT
// Which family of algorithms takes which convolution, and how much workspace it wants.
//
// The rules follow the tables of the cuDNN API reference in spirit, and are narrower where the tables differ
// between versions.
#include "cudnn_device.h"

static bool one(const int pair[2])
{
   return pair[0] == 1 && pair[1] == 1;
}

st output_shape(const struct convolution *conv, const struct array *x, const struct array *w, int dim[4])
{
   if (x->dim[1] != w->dim[1] * conv->groups || w->dim[0] % conv->groups)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%d channels, filter %d x %d, %d groups", x->dim[1], w->dim[0], w->dim[1],
                    conv->groups);
   dim[0] = x->dim[0];
   dim[1] = w->dim[0];
   for (int i = 0; i < 2; i++) {
      int room = x->dim[2 + i] + 2 * conv->pad[i] - ((w->dim[2 + i] - 1) * conv->dilation[i] + 1);
      if (room < 0) return refuse(CUDNN_STATUS_BAD_PARAM, "the filter is larger than the padded image");
      dim[2 + i] = 1 + room / conv->stride[i];
   }
   return CUDNN_STATUS_SUCCESS;
}

bool family_takes(const struct geometry *g, enum family family)
{
   const int *x = g->x.dim, *w = g->w.dim, *pad = g->conv.pad;
   bool simple = one(g->conv.stride) && one(g->conv.dilation) && g->conv.groups == 1 &&
                 g->x.format == CUDNN_TENSOR_NCHW;
   switch (family) {
   case PLAIN: return true;
   case GEMM: return one(g->conv.dilation) && g->x.format == CUDNN_TENSOR_NCHW;
   case FFT:
      return simple && g->x.type == CUDNN_DATA_FLOAT && w[2] > pad[0] && w[3] > pad[1] && x[2] + 2 * pad[0] <= 256 &&
             x[3] + 2 * pad[1] <= 256;
   case WINOGRAD: return simple && g->x.type == CUDNN_DATA_FLOAT && w[2] == 3 && w[3] == 3;
   case WINOGRAD_NONFUSED:
      return simple && g->x.type != CUDNN_DATA_DOUBLE && w[2] == w[3] && (w[2] == 3 || w[2] == 5);
   default: return false;
   }
}

// Invented, but they grow with the shape, differ between passes and types, and are odd multiples of 256 bytes
size_t family_workspace(const struct geometry *g, enum family family)
{
   const int *w = g->w.dim, *y = g->y.dim;
   size_t bytes = 65536 + array_bytes(&g->w) + 512 * (size_t)g->pass;
   if (family == GEMM) bytes += (size_t)w[1] * (size_t)(w[2] * w[3] * y[2] * y[3]) * type_bytes(g->x.type);
   if (family == FFT) bytes += 4 * (array_bytes(&g->x) + array_bytes(&g->y)) + 16384 * (size_t)(w[0] * w[1]);
   if (family == WINOGRAD_NONFUSED) bytes += 2 * (array_bytes(&g->x) + array_bytes(&g->y));
   return (bytes + 255) / 256 * 256;
}
