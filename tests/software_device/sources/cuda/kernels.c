// SPDX-License-Identifier: MIT
// What each kernel of fortran/cuda/kernels/kernels.cuf takes, and which bytes it may touch.
#include <string.h>
#include "device.h"

enum { THREADS = 256 };

static int refuse(const struct launch *l, const char *why)
{
   complain("%s: %s", l->kernel->name, why);
   return -1;
}

static size_t value_bytes(const struct launch *l)
{
   const char *name = l->kernel->name;
   return strstr(name, "_f64") ? 8 : strstr(name, "f16") ? 2 : 4;
}

static bool flat(const struct launch *l)
{
   return l->grid.y == 1 && l->grid.z == 1;
}

static void put(struct range *ranges, int *n, const void *address, int64_t elements, size_t size, bool write)
{
   if (elements > 0) ranges[(*n)++] = (struct range){address, (size_t)elements * size, write};
}

// (n, y, t, dy, slope, partial)
static int mse(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[2].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i, value_bytes(l), true);
   put(r, &n, v[5].p, (int64_t)l->grid.x * THREADS, 8, true);
   return n;
}

// (n, from(n, rows), m, to(m, rows)), rows = grid.y
static int fold(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[2].i < 1 || l->grid.z != 1) return refuse(l, "negative or no size, or a grid with depth");
   if (v[2].i > (int64_t)l->grid.x * THREADS) return refuse(l, "m is more than the threads of a row of blocks");
   put(r, &n, v[1].p, v[0].i * l->grid.y, 8, false);
   put(r, &n, v[3].p, v[2].i * l->grid.y, 8, true);
   return n;
}

// (n, z, da, dz)
static int relu_backward(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   for (int i = 1; i <= 3; i++) put(r, &n, v[i].p, v[0].i, value_bytes(l), i == 3);
   return n;
}

// (pixels, channels, batch, z, da, dz, partial(T, channels)), channels = grid.y
static int relu_backward_bias(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[2].i < 0 || l->grid.z != 1) return refuse(l, "negative size, or a grid with depth");
   if (v[1].i != l->grid.y) return refuse(l, "the grid's height is not the number of channels");
   for (int i = 3; i <= 5; i++) put(r, &n, v[i].p, v[0].i * v[1].i * v[2].i, value_bytes(l), i == 5);
   put(r, &n, v[6].p, (int64_t)l->grid.x * THREADS * v[1].i, 8, true);
   return n;
}

// (pixels, channels, batch, dz, partial(T, channels)), channels = grid.y
static int bias_gradient(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[2].i < 0 || l->grid.z != 1) return refuse(l, "negative size, or a grid with depth");
   if (v[1].i != l->grid.y) return refuse(l, "the grid's height is not the number of channels");
   put(r, &n, v[3].p, v[0].i * v[1].i * v[2].i, value_bytes(l), false);
   put(r, &n, v[4].p, (int64_t)l->grid.x * THREADS * v[1].i, 8, true);
   return n;
}

// (n, channels, z, da, dz, partial(T / channels, channels))
static int relu_backward_nhwc(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[1].i < 1 || !flat(l)) return refuse(l, "negative or no size, or a grid that is not flat");
   if ((int64_t)l->grid.x * THREADS % v[1].i) return refuse(l, "the threads are not a multiple of the channels");
   for (int i = 2; i <= 4; i++) put(r, &n, v[i].p, v[0].i, value_bytes(l), i == 4);
   put(r, &n, v[5].p, (int64_t)l->grid.x * THREADS, 8, true);
   return n;
}

// (n, channels, dz, partial(T / channels, channels))
static int channel_sums(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[1].i < 1 || !flat(l)) return refuse(l, "negative or no size, or a grid that is not flat");
   if ((int64_t)l->grid.x * THREADS % v[1].i) return refuse(l, "the threads are not a multiple of the channels");
   put(r, &n, v[2].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[3].p, (int64_t)l->grid.x * THREADS, 8, true);
   return n;
}

// (rows, columns, batch, from(rows, columns, batch), to(columns, rows, batch))
static int transpose(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[1].i < 0 || v[2].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   put(r, &n, v[3].p, v[0].i * v[1].i * v[2].i, value_bytes(l), false);
   put(r, &n, v[4].p, v[0].i * v[1].i * v[2].i, value_bytes(l), true);
   return n;
}

// (n, from, to)
static int convert(const struct launch *l, struct range *r, size_t from, size_t to)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i, from, false);
   put(r, &n, v[2].p, v[0].i, to, true);
   return n;
}

static int narrow(const struct launch *l, struct range *r)
{
   return convert(l, r, 8, value_bytes(l));
}

static int to_16(const struct launch *l, struct range *r)
{
   return convert(l, r, 4, 2);
}

static int from_16(const struct launch *l, struct range *r)
{
   return convert(l, r, 2, 4);
}

// (n, w, g, v, lr, momentum, keep, decay, flags); flags: 1 momentum, 2 first step, 4 Nesterov, 8 weight decay
static int sgd(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, flags = v[8].w;
   if (v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   if (flags < 0 || flags > 15) return refuse(l, "unknown flags");
   put(r, &n, v[1].p, v[0].i, value_bytes(l), true);
   put(r, &n, v[2].p, v[0].i, value_bytes(l), false);
   if (flags & 1) put(r, &n, v[3].p, v[0].i, value_bytes(l), true);
   return n;
}

static const struct kernel kernels[] = {
   {"cnn_mse_f32", "ipppfp", mse},
   {"cnn_mse_f64", "ipppdp", mse},
   {"cnn_fold", "ipip", fold},
   {"cnn_relu_backward_f32", "ippp", relu_backward},
   {"cnn_relu_backward_f64", "ippp", relu_backward},
   {"cnn_relu_backward_bias_f32", "iiipppp", relu_backward_bias},
   {"cnn_relu_backward_bias_f64", "iiipppp", relu_backward_bias},
   {"cnn_bias_gradient_f32", "iiipp", bias_gradient},
   {"cnn_bias_gradient_f64", "iiipp", bias_gradient},
   {"cnn_narrow_f32", "ipp", narrow},
   {"cnn_narrow_f64", "ipp", narrow},
   {"cnn_sgd_f32", "ipppffffw", sgd},
   {"cnn_sgd_f64", "ipppddddw", sgd},
   {"cnn_relu_backward_nhwc_f32", "iipppp", relu_backward_nhwc},
   {"cnn_relu_backward_nhwc_f16", "iipppp", relu_backward_nhwc},
   {"cnn_relu_backward_nhwc_bf16", "iipppp", relu_backward_nhwc},
   {"cnn_channel_sums_f32", "iipp", channel_sums},
   {"cnn_channel_sums_f16", "iipp", channel_sums},
   {"cnn_channel_sums_bf16", "iipp", channel_sums},
   {"cnn_transpose_f32", "iiipp", transpose},
   {"cnn_transpose_f16", "iiipp", transpose},
   {"cnn_transpose_bf16", "iiipp", transpose},
   {"cnn_f32_to_f16", "ipp", to_16},
   {"cnn_f32_to_bf16", "ipp", to_16},
   {"cnn_f16_to_f32", "ipp", from_16},
   {"cnn_bf16_to_f32", "ipp", from_16},
};

const struct kernel *find_kernel(const char *name)
{
   for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
      if (!strcmp(kernels[i].name, name)) return &kernels[i];
   return NULL;
}
