// SPDX-License-Identifier: MIT
// Which algorithm takes which convolution, how much workspace it wants, and in which order cuDNN offers them.
//
// The rules follow the tables of the cuDNN API reference in spirit, and are narrower where the tables differ
// between versions. The order puts traps first: transforms, non-deterministic ones, large workspaces.
#include <string.h>
#include "cudnn_device.h"

struct entry {
   enum family family;
   bool random, space;
};
static const struct entry forward[] = {
   {PLAIN, false, false}, {PLAIN, false, true}, {GEMM, false, true},     {NONE, false, false},
   {FFT, false, true},    {FFT, false, true},   {WINOGRAD, false, false}, {WINOGRAD_NONFUSED, false, true}};
static const struct entry backward_data[] = {
   {PLAIN, true, false}, {PLAIN, false, true},    {FFT, false, true},
   {FFT, false, true},   {WINOGRAD, false, false}, {WINOGRAD_NONFUSED, false, true}};
static const struct entry backward_filter[] = {
   {PLAIN, true, false}, {PLAIN, false, true},  {FFT, false, true}, {PLAIN, true, true},
   {NONE, false, false}, {WINOGRAD_NONFUSED, false, true}, {FFT, false, true}};
static const struct entry *const tables[] = {forward, backward_data, backward_filter};
static const int counts[] = {8, 6, 7};
static const int orders[][8] = {{7, 6, 1, 0, 5, 4, 2, 3}, {5, 4, 0, 1, 3, 2}, {5, 0, 3, 1, 6, 2, 4}};

int algorithm_count(enum pass pass)
{
   return counts[pass];
}

int algorithm_order(enum pass pass, int place)
{
   return orders[pass][place];
}

static bool one(const int pair[2])
{
   return pair[0] == 1 && pair[1] == 1;
}

static st check_types(const struct geometry *g)
{
   if (g->x.type != g->w.type || g->x.type != g->y.type)
      return refuse(CUDNN_STATUS_BAD_PARAM, "data types of tensors and filter differ: %d %d %d", (int)g->x.type,
                    (int)g->w.type, (int)g->y.type);
   cudnnDataType_t compute = g->x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
   if (g->conv.compute != compute)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "compute type %d for data type %d", (int)g->conv.compute,
                    (int)g->x.type);
   if (g->x.format != g->w.format || g->x.format != g->y.format)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "formats of tensors and filter differ: %d %d %d",
                    (int)g->x.format, (int)g->w.format, (int)g->y.format);
   if (g->x.type == CUDNN_DATA_DOUBLE && g->x.format == CUDNN_TENSOR_NHWC)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "float64 in NHWC");
   return CUDNN_STATUS_SUCCESS;
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

st make_geometry(struct geometry *g, enum pass pass, hd h, td x, fd w, cd conv, td y)
{
   int dim[4];
   TRY(check_handle(h, "cuDNN handle"));
   TRY(check_tensor(x, pass == BACKWARD_DATA ? "dxDesc" : "xDesc"));
   TRY(check_filter(w, pass == BACKWARD_FILTER ? "dwDesc" : "wDesc"));
   TRY(check_convolution(conv));
   TRY(check_tensor(y, pass == FORWARD ? "yDesc" : "dyDesc"));
   *g = (struct geometry){pass, x->array, w->array, y->array, conv->convolution};
   TRY(check_types(g));
   TRY(output_shape(&g->conv, &g->x, &g->w, dim));
   if (memcmp(dim, g->y.dim, sizeof dim))
      return refuse(CUDNN_STATUS_BAD_PARAM, "output is %d %d %d %d, its descriptor says %d %d %d %d", dim[0], dim[1],
                    dim[2], dim[3], g->y.dim[0], g->y.dim[1], g->y.dim[2], g->y.dim[3]);
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
   size_t bytes = 65536 + array_bytes(&g->w) + (g->conv.math == CUDNN_FMA_MATH ? 0 : 4096) + 512 * (size_t)g->pass;
   if (family == GEMM) bytes += (size_t)w[1] * (size_t)(w[2] * w[3] * y[2] * y[3]) * type_bytes(g->x.type);
   if (family == FFT) bytes += 4 * (array_bytes(&g->x) + array_bytes(&g->y)) + 16384 * (size_t)(w[0] * w[1]);
   if (family == WINOGRAD_NONFUSED) bytes += 2 * (array_bytes(&g->x) + array_bytes(&g->y));
   return (bytes + 255) / 256 * 256;
}

struct algorithm algorithm_for(const struct geometry *g, int algo)
{
   struct algorithm a = {algo, CUDNN_STATUS_SUCCESS, 0, CUDNN_DETERMINISTIC};
   if (algo < 0 || algo >= counts[g->pass]) {
      a.status = refuse(CUDNN_STATUS_BAD_PARAM, "algorithm %d", algo);
      return a;
   }
   const struct entry *entry = &tables[g->pass][algo];
   if (entry->random) a.determinism = CUDNN_NON_DETERMINISTIC;
   if (!family_takes(g, entry->family))
      a.status = refuse(CUDNN_STATUS_NOT_SUPPORTED, "algorithm %d does not take this convolution", algo);
   else if (entry->space) a.workspace = family_workspace(g, entry->family);
   return a;
}
