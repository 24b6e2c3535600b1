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

// (n, rows, from(n, rows), m, to(m, rows))
static int fold(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[1].i < l->grid.y || v[3].i < 1 || l->grid.z != 1)
      return refuse(l, "negative or no size, fewer rows than blocks in y, or a grid with depth");
   put(r, &n, v[2].p, v[0].i * v[1].i, 8, false);
   put(r, &n, v[4].p, v[3].i * v[1].i, 8, true);
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

// (n, arrays of n elements, settings): the last array is written, what is read may be one array twice
static int elements(const struct launch *l, struct range *r)
{
   int n = 0, last = 0;
   if (l->v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   for (int i = 1; l->kernel->arguments[i]; i++)
      if (l->kernel->arguments[i] == 'p') last = i;
   for (int i = 1; i <= last; i++) put(r, &n, l->v[i].p, l->v[0].i, value_bytes(l), i == last);
   return n;
}

// (n, g, w, m, v, ...)
static int adam(const struct launch *l, struct range *r)
{
   int n = 0;
   if (l->v[0].i < 0 || !flat(l)) return refuse(l, "negative size, or a grid that is not flat");
   for (int i = 1; i <= 4; i++) put(r, &n, l->v[i].p, l->v[0].i, value_bytes(l), i > 1);
   return n;
}

// (n, x, mask(n / pixels), y, pixels, scale)
static int dropout(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 1 || v[4].i < 1 || v[0].i % v[4].i || !flat(l)) return refuse(l, "no whole channels, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[2].p, v[0].i / v[4].i, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, bias(channels), y, pixels, channels)
static int add_bias(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 0 || v[3].i < 1 || v[4].i < 1 || v[0].i % (v[3].i * v[4].i) || !flat(l))
      return refuse(l, "no whole images, or a grid that is not flat");
   put(r, &n, v[1].p, v[4].i, value_bytes(l), false);
   put(r, &n, v[2].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, from, to, row, from_first, from_step, to_first, to_step)
static int copy_rows(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 1 || v[3].i < 1 || v[0].i % v[3].i || !flat(l)) return refuse(l, "no whole rows, or a grid that is not flat");
   int64_t rows = v[0].i / v[3].i;
   put(r, &n, v[1].p, v[4].i + (rows - 1) * v[5].i + v[3].i, value_bytes(l), false);
   put(r, &n, v[2].p, v[6].i + (rows - 1) * v[7].i + v[3].i, value_bytes(l), true);
   return n;
}

// Elements from the first to the last that four extents and strides reach
static int64_t reach(const int64_t extents[4], const union value *strides)
{
   int64_t last = 0;
   for (int i = 0; i < 4; i++) last += (extents[i] - 1) * strides[i].i;
   return last + 1;
}

// (n, a, b, y, three extents, four strides of a, four of b, f), or with dy and dx for y, and the operand
static int combine(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, whole = l->kernel->arguments[4] == 'p' ? 4 : 3;
   int64_t image = v[whole + 1].i * v[whole + 2].i * v[whole + 3].i;
   if (v[0].i < 1 || image < 1 || v[0].i % image || !flat(l)) return refuse(l, "no whole images, or a grid that is not flat");
   const int64_t extents[4] = {v[whole + 1].i, v[whole + 2].i, v[whole + 3].i, v[0].i / image};
   put(r, &n, v[1].p, reach(extents, v + whole + 4), value_bytes(l), false);
   put(r, &n, v[2].p, reach(extents, v + whole + 8), value_bytes(l), false);
   for (int i = 3; i <= whole; i++) put(r, &n, v[i].p, v[0].i, value_bytes(l), i == whole);
   return n;
}

// (n, tensors, partial, parts, size, three extents, three of a box, four strides of the last tensor, those of the others,
// ...): one tensor, or three
static int box_sums(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, last = l->kernel->arguments[3] == 'p' ? 3 : 1;
   const union value *s = v + last + 2;
   int64_t boxes = s[0].i > 0 ? v[0].i / s[0].i : 0, image = s[2].i * s[3].i * s[4].i, box = s[5].i * s[6].i * s[7].i;
   if (boxes < 1 || image < 1 || box < 1 || boxes % image || s[1].i % box || v[0].i % s[0].i || !flat(l))
      return refuse(l, "no whole boxes, or a grid that is not flat");
   const int64_t extents[4] = {s[2].i * s[5].i, s[3].i * s[6].i, s[4].i * s[7].i, boxes / image * (s[1].i / box)};
   for (int i = 1; i <= last; i++)
      put(r, &n, v[i].p, reach(extents, s + 8 + 4 * (i % last)), value_bytes(l), false);
   put(r, &n, v[last + 1].p, v[0].i, 8, true);
   return n;
}

// (n, x, y, inner, channels, flag) of n * channels elements each
static int softmax(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, arrays = l->kernel->arguments[3] == 'p' ? 3 : 2;
   int64_t inner = v[arrays + 1].i, channels = v[arrays + 2].i;
   if (v[0].i < 1 || inner < 1 || channels < 1 || v[0].i % inner || !flat(l))
      return refuse(l, "no whole images, or a grid that is not flat");
   for (int i = 1; i <= arrays; i++) put(r, &n, v[i].p, v[0].i * channels, value_bytes(l), i == arrays);
   return n;
}

// (n, y, t, dy, partial, ...): n elements, or n pixels of channels
static int loss(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t elements = v[0].i * (l->kernel->arguments[6] == 'i' ? v[6].i : 1);
   if (v[0].i < 1 || elements < 1 || !flat(l)) return refuse(l, "negative or no size, or a grid that is not flat");
   for (int i = 1; i <= 3; i++) put(r, &n, v[i].p, elements, value_bytes(l), i == 3);
   put(r, &n, v[4].p, (int64_t)l->grid.x * THREADS, 8, true);
   return n;
}

// (n, y, t, weights, dy, partial, inner, channels, ...): n pixels of channels
static int class_loss(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t channels = v[7].i, elements = v[0].i * channels;
   if (v[0].i < 1 || elements < 1 || !flat(l)) return refuse(l, "negative or no size, or a grid that is not flat");
   for (int i = 1; i <= 4; i++) put(r, &n, v[i].p, i == 3 ? channels : elements, value_bytes(l), i == 4);
   put(r, &n, v[5].p, (int64_t)l->grid.x * THREADS, 8, true);
   return n;
}

// (n, arrays, w, h, q, p, ...): n elements of the last array, which is of one of the two sizes, as the others are
static int images(const struct launch *l, struct range *r, bool back)
{
   const union value *v = l->v;
   int n = 0, arrays = 0;
   while (l->kernel->arguments[arrays + 1] == 'p') arrays++;
   int64_t large = v[arrays + 1].i * v[arrays + 2].i, small = v[arrays + 3].i * v[arrays + 4].i;
   int64_t of_last = back ? large : small;
   if (v[0].i < 1 || large < 1 || small < 1 || v[0].i % of_last || !flat(l))
      return refuse(l, "no whole images, or a grid that is not flat");
   for (int i = 1; i <= arrays; i++) {
      bool is_large = back ? i != arrays - 1 : i == 1;
      put(r, &n, v[i].p, v[0].i / of_last * (is_large ? large : small), value_bytes(l), i == arrays);
   }
   return n;
}

static int windows(const struct launch *l, struct range *r)
{
   return images(l, r, false);
}

static int windows_back(const struct launch *l, struct range *r)
{
   return images(l, r, true);
}

// (n, a, b, y, columns, rows, inner, three strides of a (row, inner, matrix), three of b (column, inner, matrix))
static int matmul(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t columns = v[4].i, rows = v[5].i, inner = v[6].i;
   if (v[0].i < 1 || columns < 1 || rows < 1 || inner < 1 || v[0].i % (columns * rows) || !flat(l))
      return refuse(l, "no whole matrices, or a grid that is not flat");
   int64_t last = v[0].i / (columns * rows) - 1;
   put(r, &n, v[1].p, last * v[9].i + (rows - 1) * v[7].i + (inner - 1) * v[8].i + 1, value_bytes(l), false);
   put(r, &n, v[2].p, last * v[12].i + (columns - 1) * v[10].i + (inner - 1) * v[11].i + 1, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i, value_bytes(l), true);
   return n;
}

// (pixels, channels, batch, x, sums or dy, ..., partial(T, channels) or two of these, ...)
static int channel_moments(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   bool gradients = strstr(l->kernel->name, "gradients");
   int64_t all = v[0].i * v[1].i * v[2].i;
   if (all < 1 || v[1].i != l->grid.y || l->grid.z != 1) return refuse(l, "no size, or not as many rows as channels");
   put(r, &n, v[3].p, all, value_bytes(l), false);
   if (gradients) {
      put(r, &n, v[4].p, all, value_bytes(l), false);
      put(r, &n, v[5].p, v[1].i, 8, false);
      put(r, &n, v[6].p, v[1].i, 8, false);
      put(r, &n, v[7].p, (int64_t)l->grid.x * THREADS * v[1].i * 2, 8, true);
   } else {
      if (v[6].i == 2) put(r, &n, v[4].p, v[1].i, 8, false);
      put(r, &n, v[5].p, (int64_t)l->grid.x * THREADS * v[1].i, 8, true);
   }
   return n;
}

// (n, sums, squares, running_mean, running_variance, means, scales, training, follow, count, eps, momentum)
static int statistics(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 1 || !flat(l)) return refuse(l, "no size, or a grid that is not flat");
   if (v[8].i && !v[7].i) return refuse(l, "running statistics that follow themselves");
   for (int i = 1; v[7].i && i <= 2; i++) put(r, &n, v[i].p, v[0].i, 8, false);
   for (int i = 3; (v[8].i || !v[7].i) && i <= 4; i++) put(r, &n, v[i].p, v[0].i, value_bytes(l), v[8].i);
   for (int i = 5; i <= 6; i++) put(r, &n, v[i].p, v[0].i, 8, true);
   return n;
}

// (pixels, channels, batch, x, weight, bias, means, scales, y)
static int normalize(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t all = v[0].i * v[1].i * v[2].i;
   if (all < 1 || v[1].i != l->grid.y || l->grid.z != 1) return refuse(l, "no size, or not as many rows as channels");
   put(r, &n, v[3].p, all, value_bytes(l), false);
   for (int i = 4; i <= 5; i++) put(r, &n, v[i].p, v[1].i, value_bytes(l), false);
   for (int i = 6; i <= 7; i++) put(r, &n, v[i].p, v[1].i, 8, false);
   put(r, &n, v[8].p, all, value_bytes(l), true);
   return n;
}

// (pixels, channels, batch, x, weight, dy, means, scales, totals(channels, 2), dweight, dbias, dx, training, count)
static int normalize_backward(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t all = v[0].i * v[1].i * v[2].i;
   if (all < 1 || v[1].i != l->grid.y || l->grid.z != 1) return refuse(l, "no size, or not as many rows as channels");
   put(r, &n, v[3].p, all, value_bytes(l), false);
   put(r, &n, v[4].p, v[1].i, value_bytes(l), false);
   put(r, &n, v[5].p, all, value_bytes(l), false);
   for (int i = 6; i <= 7; i++) put(r, &n, v[i].p, v[1].i, 8, false);
   put(r, &n, v[8].p, 2 * v[1].i, 8, false);
   for (int i = 9; i <= 10; i++) put(r, &n, v[i].p, v[1].i, value_bytes(l), true);
   put(r, &n, v[11].p, all, value_bytes(l), true);
   return n;
}

// (n, x, y, three extents of y, four strides of x, divisor)
static int gather(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t image = v[3].i * v[4].i * v[5].i;
   if (v[0].i < 1 || image < 1 || v[0].i % image || !flat(l)) return refuse(l, "no whole images, or a grid that is not flat");
   const int64_t extents[4] = {v[3].i, v[4].i, v[5].i, v[0].i / image};
   put(r, &n, v[1].p, reach(extents, v + 6), value_bytes(l), false);
   put(r, &n, v[2].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, x, y, size, ...), or (n, x, y, dy, dx, size, ...): n boxes of so many elements
static int extreme(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, arrays = l->kernel->arguments[3] == 'p' ? 4 : 2;
   int64_t all = v[0].i * v[arrays + 1].i;
   if (v[0].i < 1 || all < 1 || !flat(l)) return refuse(l, "no boxes, or a grid that is not flat");
   put(r, &n, v[1].p, all, value_bytes(l), false);
   for (int i = 2; i <= 3 && i < arrays; i++) put(r, &n, v[i].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[arrays].p, arrays == 4 ? all : v[0].i, value_bytes(l), true);
   return n;
}

// Numbers of a row, from where the arguments (inner, columns, groups) are
static int64_t row_of(const union value *form)
{
   return form[0].i > 0 && form[1].i > 0 && form[2].i > 0 ? form[0].i * form[1].i : 0;
}

// (n, x, weight, dy, means, scales, partial, parts, inner, columns, groups, order, weighted)
static int row_sums(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t parts = v[7].i, row = row_of(v + 8), order = v[11].i;
   if (parts < 1 || v[0].i < 1 || v[0].i % parts || row < 1 || order < 1 || order > 4 || !flat(l))
      return refuse(l, "no whole rows, no such order, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i / parts * row, value_bytes(l), false);
   if (order >= 3 && v[12].i) put(r, &n, v[2].p, v[9].i * v[10].i, value_bytes(l), false);
   if (order >= 3) put(r, &n, v[3].p, v[0].i / parts * row, value_bytes(l), false);
   if (order == 2 || order == 4) put(r, &n, v[4].p, v[0].i / parts, 8, false);
   if (order == 4) put(r, &n, v[5].p, v[0].i / parts, 8, false);
   put(r, &n, v[6].p, v[0].i, 8, true);
   return n;
}

// (n, x, dy, means, scales, partial, parts, inner, columns, groups, rows, order)
static int column_sums(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t parts = v[6].i, row = row_of(v + 7), rows = v[10].i;
   if (parts < 1 || row < 1 || rows < 1 || rows % v[9].i || v[0].i != parts * v[8].i * v[9].i || !flat(l))
      return refuse(l, "no whole columns, or a grid that is not flat");
   for (int i = 1; i <= 2; i++) put(r, &n, v[i].p, rows * row, value_bytes(l), false);
   for (int i = 3; i <= 4; i++) put(r, &n, v[i].p, rows, 8, false);
   put(r, &n, v[5].p, v[0].i, 8, true);
   return n;
}

// (n, x, weight, bias, means, scales, y, inner, columns, groups, weighted, shifted)
static int row_normalize(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t row = row_of(v + 7);
   if (v[0].i < 1 || row < 1 || v[0].i % (row * v[9].i) || !flat(l)) return refuse(l, "no whole rows, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i, value_bytes(l), false);
   for (int i = 2; i <= 3; i++)
      if (v[i + 8].i) put(r, &n, v[i].p, v[8].i * v[9].i, value_bytes(l), false);
   for (int i = 4; i <= 5; i++) put(r, &n, v[i].p, v[0].i / row, 8, false);
   put(r, &n, v[6].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, x, weight, dy, means, scales, totals, along, dx, inner, columns, groups, weighted)
static int row_normalize_backward(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t row = row_of(v + 9);
   if (v[0].i < 1 || row < 1 || v[0].i % (row * v[11].i) || !flat(l)) return refuse(l, "no whole rows, or a grid that is not flat");
   put(r, &n, v[1].p, v[0].i, value_bytes(l), false);
   if (v[12].i) put(r, &n, v[2].p, v[10].i * v[11].i, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i, value_bytes(l), false);
   for (int i = 4; i <= 7; i++) put(r, &n, v[i].p, v[0].i / row, 8, false);
   put(r, &n, v[8].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, in_group, inputs, outputs, base, four steps, with_bias, from, bias, to): biases behind the weights, at a multiple of 4
static int direct_arrange(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t inputs = v[2].w, outputs = v[3].w;
   if (inputs < 1 || outputs < 1 || v[0].w != 9 * inputs * outputs || v[1].w < 1 || outputs % v[1].w || !flat(l))
      return refuse(l, "no whole filters or groups, or a grid that is not flat");
   put(r, &n, v[10].p, v[0].w, 4, false);
   if (v[9].w) put(r, &n, v[11].p, outputs, 4, false);
   put(r, &n, v[12].p, (v[0].w + 3) / 4 * 4 + outputs, 4, true);
   return n;
}

// (tiles, q, p, w, h, inputs, outputs, left, top), then (relu, x, f, bias, y) or (x, f, bias, a, partial(T, outputs))
static int direct(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   bool masked = strstr(l->kernel->name, "masked"), many = strstr(l->kernel->name, "_16");
   int n = 0, first = masked ? 9 : 10, together = many ? 16 : 1, below = many ? 4 : 8;
   int64_t q = v[1].w, p = v[2].w, w = v[3].w, h = v[4].w, inputs = v[5].w, outputs = v[6].w;
   int64_t of_image = q * ((p + below - 1) / below);
   if (q < 1 || p < 1 || w < 1 || h < 1 || inputs < 1 || v[0].w < 1 || v[0].w % of_image)
      return refuse(l, "no size, or no whole images");
   if (outputs != (int64_t)together * l->grid.y || l->grid.z != 1)
      return refuse(l, "the grid's height is not the number of groups");
   if (q != w + 2 * v[7].w - 2 || p != h + 2 * v[8].w - 2) return refuse(l, "extents that do not fit to the padding");
   int64_t batch = v[0].w / of_image;
   put(r, &n, v[first].p, w * h * inputs * batch, 4, false);
   put(r, &n, v[first + 1].p, 9 * inputs * outputs, 4, false);
   put(r, &n, v[first + 2].p, outputs, 4, false);
   put(r, &n, v[first + 3].p, q * p * outputs * batch, 4, true);
   if (masked) put(r, &n, v[first + 4].p, (int64_t)l->grid.x * THREADS * outputs, 8, true);
   return n;
}

// (items, strips, pieces, rows, q, p, w, h, inputs, outputs, left, top, turned, x, d, partial(32 parts, 9 inputs outputs))
static int direct_filter(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t strips = v[1].w, pieces = v[2].w, rows = v[3].w, q = v[4].w, p = v[5].w, w = v[6].w, h = v[7].w;
   int64_t inputs = v[8].w, outputs = v[9].w;
   if (q < 1 || p < 1 || w < 1 || h < 1 || inputs < 1 || v[0].w < 1 || strips != (q + 127) / 128 || rows < 1 ||
       pieces != (p + rows - 1) / rows || v[0].w % (strips * pieces))
      return refuse(l, "no size, or pieces that are not the image");
   if (outputs != 4 * (int64_t)l->grid.y || l->grid.z != 1)
      return refuse(l, "the grid's height is not the number of groups");
   if (q != w + 2 * v[10].w - 2 || p != h + 2 * v[11].w - 2) return refuse(l, "extents that do not fit to the padding");
   int64_t batch = v[0].w / (strips * pieces), parts = (int64_t)l->grid.x * THREADS / 32 / inputs;
   if (parts < 1) return refuse(l, "fewer warps than channels");
   put(r, &n, v[13].p, w * h * inputs * batch, 4, false);
   put(r, &n, v[14].p, q * p * outputs * batch, 4, false);
   put(r, &n, v[15].p, 32 * parts * 9 * inputs * outputs, 8, true);
   return n;
}

// (items, pieces, rows, q, p, h, inputs, outputs, top, turned, x, d, partial(32 parts, 9 inputs outputs))
static int direct_filter_quads(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t pieces = v[1].w, rows = v[2].w, q = v[3].w, p = v[4].w, h = v[5].w, inputs = v[6].w, outputs = v[7].w;
   if (q < 4 || q % 4 || p < 1 || h < 1 || inputs < 1 || v[0].w < 1 || rows < 1 || pieces != (p + rows - 1) / rows ||
       v[0].w % (q / 4 * pieces))
      return refuse(l, "no size, columns that are not read four at a time, or pieces that are not the image");
   if (outputs != 4 * (int64_t)l->grid.y || l->grid.z != 1)
      return refuse(l, "the grid's height is not the number of groups");
   if (p != h + 2 * v[8].w - 2) return refuse(l, "extents that do not fit to the padding");
   int64_t batch = v[0].w / (q / 4 * pieces), parts = (int64_t)l->grid.x * THREADS / 32 / inputs;
   if (parts < 1) return refuse(l, "fewer warps than channels");
   put(r, &n, v[10].p, q * h * inputs * batch, 4, false);
   put(r, &n, v[11].p, q * p * outputs * batch, 4, false);
   put(r, &n, v[12].p, 32 * parts * 9 * inputs * outputs, 8, true);
   return n;
}

// Elements of coefficients, from where the arguments (features, outputs, order, grid) are
static int64_t coefficients_of(const union value *form)
{
   return form[0].i > 0 && form[1].i > 0 && form[2].i >= 2 && form[2].i <= 5 && form[3].i > 0
      ? form[0].i * form[1].i * (form[2].i + form[3].i) : 0;
}

// (n, x, coefficient, scale_base, scale_spline, y, features, outputs, order, grid, scaled, low, high), or with dy and dx for y
static int spline(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0, last = l->kernel->arguments[6] == 'p' ? 6 : 5;
   const union value *form = v + last + 1;
   int64_t row = form[last == 5].i, rows = row > 0 ? v[0].i / row : 0, all = coefficients_of(form);
   if (v[0].i < 1 || all < 1 || v[0].i % row || !flat(l)) return refuse(l, "no whole rows, or a grid that is not flat");
   put(r, &n, v[1].p, rows * form[0].i, value_bytes(l), false);
   put(r, &n, v[2].p, all, value_bytes(l), false);
   put(r, &n, v[3].p, form[0].i * form[1].i, value_bytes(l), false);
   if (form[4].i) put(r, &n, v[4].p, form[0].i * form[1].i, value_bytes(l), false);
   if (last == 6) put(r, &n, v[5].p, rows * form[1].i, value_bytes(l), false);
   put(r, &n, v[last].p, v[0].i, value_bytes(l), true);
   return n;
}

// (n, x, dy, partial, parts, features, outputs, order, grid, rows, low, high)
static int spline_sums(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   int64_t all = coefficients_of(v + 5), pairs = v[5].i * v[6].i, rows = v[9].i;
   if (all < 1 || rows < 1 || v[4].i < 1 || v[0].i != v[4].i * (all + pairs) || !flat(l))
      return refuse(l, "not as many sums as functions, or a grid that is not flat");
   put(r, &n, v[1].p, rows * v[5].i, value_bytes(l), false);
   put(r, &n, v[2].p, rows * v[6].i, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i, 8, true);
   return n;
}

// (n, coefficient, scale_spline, sums, dscale_spline, dscale_base, dcoefficient, functions, scaled)
static int spline_gradients(const struct launch *l, struct range *r)
{
   const union value *v = l->v;
   int n = 0;
   if (v[0].i < 1 || v[7].i < 1 || !flat(l)) return refuse(l, "no size, or a grid that is not flat");
   if (v[8].i) put(r, &n, v[1].p, v[0].i * v[7].i, value_bytes(l), false);
   if (v[8].i) put(r, &n, v[2].p, v[0].i, value_bytes(l), false);
   put(r, &n, v[3].p, v[0].i * (v[7].i + 1), 8, false);
   if (v[8].i) put(r, &n, v[4].p, v[0].i, value_bytes(l), true);
   put(r, &n, v[5].p, v[0].i, value_bytes(l), true);
   put(r, &n, v[6].p, v[0].i * v[7].i, value_bytes(l), true);
   return n;
}

#define BOTH(name, arguments, ranges) {"cnn_" name "_f32", arguments, ranges}, {"cnn_" name "_f64", arguments, ranges}

static const struct kernel kernels[] = {
   {"cnn_mse_f32", "ipppfp", mse},
   {"cnn_mse_f64", "ipppdp", mse},
   {"cnn_fold", "iipip", fold},
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
   {"cnn_direct_1", "wwwwwwwwwwpppp", direct},
   {"cnn_direct_16", "wwwwwwwwwwpppp", direct},
   {"cnn_direct_arrange", "wwwwwwwwwwppp", direct_arrange},
   {"cnn_direct_filter", "wwwwwwwwwwwwwppp", direct_filter},
   {"cnn_direct_filter_quads", "wwwwwwwwwwppp", direct_filter_quads},
   {"cnn_direct_masked_1", "wwwwwwwwwppppp", direct},
   {"cnn_direct_masked_16", "wwwwwwwwwppppp", direct},
   BOTH("accumulate", "ipp", elements),
   BOTH("adam", "ippppdddddddd", adam),
   BOTH("add_bias", "ippii", add_bias),
   BOTH("avg_pool", "ippiiiiiiiiii", windows),
   BOTH("avg_pool_backward", "ippiiiiiiiiii", windows_back),
   BOTH("box_sums", "ippiiiiiiiiiiiid", box_sums),
   BOTH("class_entropy", "ipppppiiiidd", class_loss),
   BOTH("combine", "ipppi", elements),
   BOTH("combine_backward", "ippppiiiiiiiiiiiii", combine),
   BOTH("combine_broadcast", "ipppiiiiiiiiiiii", combine),
   BOTH("combine_sums", "ippppiiiiiiiiiiiiiiiiiiiiii", box_sums),
   BOTH("column_sums", "ipppppiiiiii", column_sums),
   BOTH("copy", "ipp", elements),
   BOTH("copy_rows", "ippiiiii", copy_rows),
   BOTH("cross_entropy", "ippppiid", loss),
   BOTH("dropout", "ipppid", dropout),
   BOTH("extreme", "ippiiiiiiiiiiii", extreme),
   BOTH("extreme_backward", "ippppiiiiiiiiiiii", extreme),
   BOTH("gather", "ippiiiiiiid", gather),
   BOTH("matmul", "ipppiiiiiiiii", matmul),
   BOTH("max_pool", "ippiiiiiiiiii", windows),
   BOTH("max_pool_backward", "ipppiiiiiiiiii", windows_back),
   BOTH("moments", "iiipppid", channel_moments),
   BOTH("norm_gradients", "iiippppp", channel_moments),
   BOTH("normalize", "iiipppppp", normalize),
   BOTH("normalize_backward", "iiipppppppppid", normalize_backward),
   BOTH("pair_loss", "ippppidd", loss),
   BOTH("pointwise", "ippidd", elements),
   BOTH("pointwise_backward", "ipppidd", elements),
   BOTH("resample", "ippiiiiiii", windows),
   BOTH("resample_backward", "ippiiiiiii", windows_back),
   BOTH("row_normalize", "ippppppiiiii", row_normalize),
   BOTH("row_normalize_backward", "ippppppppiiii", row_normalize_backward),
   BOTH("row_sums", "ippppppiiiiii", row_sums),
   BOTH("softmax", "ippiii", softmax),
   BOTH("softmax_backward", "ipppiii", softmax),
   BOTH("spline", "ipppppiiiiidd", spline),
   BOTH("spline_backward", "ippppppiiiiidd", spline),
   BOTH("spline_gradients", "ippppppii", spline_gradients),
   BOTH("spline_sums", "ipppiiiiiidd", spline_sums),
   BOTH("statistics", "ippppppiiddd", statistics),
};

const struct kernel *find_kernel(const char *name)
{
   for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
      if (!strcmp(kernels[i].name, name)) return &kernels[i];
   return NULL;
}
