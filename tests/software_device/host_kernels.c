/* SPDX-License-Identifier: MIT
 * Launches the CUDA Fortran kernels on the CPU: threads run one after the other, as a grid without barriers may.
 *
 * Linked with the object of `build_kernels.py --host`, which reads the four arrays below. They hold what a GPU's
 * registers hold: zero-based indices, x, y and z. tests/software_device/host_kernels.py builds the two into a shared library;
 * another program may link them likewise. Not for several launches at once. */
#include <stdint.h>
#include <string.h>

int cnn_host_tid[3], cnn_host_ctaid[3], cnn_host_ntid[3], cnn_host_nctaid[3];

/* Not 0: the last thread first. A kernel whose result then differs has threads that depend on each other. */
int cnn_host_backwards;

typedef void kernel_type(void **args);

#define ADDRESS(k) (*(void **)args[k])
#define LONG(k) (*(int64_t *)args[k])
#define INT(k) (*(int32_t *)args[k])

#define KERNELS_OF(kind, real)                                                                              \
  void cnn_mse_##kind(int64_t, void *, void *, void *, real, void *);                                       \
  void cnn_relu_backward_##kind(int64_t, void *, void *, void *);                                           \
  void cnn_relu_backward_bias_##kind(int64_t, int64_t, int64_t, void *, void *, void *, void *);            \
  void cnn_bias_gradient_##kind(int64_t, int64_t, int64_t, void *, void *);                                 \
  void cnn_narrow_##kind(int64_t, void *, void *);                                                          \
  void cnn_sgd_##kind(int64_t, void *, void *, void *, real, real, real, real, int32_t);                    \
  static void mse_##kind(void **args) {                                                                     \
    cnn_mse_##kind(LONG(0), ADDRESS(1), ADDRESS(2), ADDRESS(3), *(real *)args[4], ADDRESS(5));              \
  }                                                                                                         \
  static void relu_backward_##kind(void **args) {                                                           \
    cnn_relu_backward_##kind(LONG(0), ADDRESS(1), ADDRESS(2), ADDRESS(3));                                  \
  }                                                                                                         \
  static void relu_backward_bias_##kind(void **args) {                                                      \
    cnn_relu_backward_bias_##kind(LONG(0), LONG(1), LONG(2), ADDRESS(3), ADDRESS(4), ADDRESS(5), ADDRESS(6)); \
  }                                                                                                         \
  static void bias_gradient_##kind(void **args) {                                                           \
    cnn_bias_gradient_##kind(LONG(0), LONG(1), LONG(2), ADDRESS(3), ADDRESS(4));                            \
  }                                                                                                         \
  static void narrow_##kind(void **args) { cnn_narrow_##kind(LONG(0), ADDRESS(1), ADDRESS(2)); }            \
  static void sgd_##kind(void **args) {                                                                     \
    cnn_sgd_##kind(LONG(0), ADDRESS(1), ADDRESS(2), ADDRESS(3), *(real *)args[4], *(real *)args[5],         \
                   *(real *)args[6], *(real *)args[7], INT(8));                                             \
  }

KERNELS_OF(f32, float)
KERNELS_OF(f64, double)

#define LAST_OF(kind)                                                                                       \
  void cnn_relu_backward_nhwc_##kind(int64_t, int64_t, void *, void *, void *, void *);                     \
  void cnn_channel_sums_##kind(int64_t, int64_t, void *, void *);                                           \
  void cnn_transpose_##kind(int64_t, int64_t, int64_t, void *, void *);                                          \
  static void relu_backward_nhwc_##kind(void **args) {                                                      \
    cnn_relu_backward_nhwc_##kind(LONG(0), LONG(1), ADDRESS(2), ADDRESS(3), ADDRESS(4), ADDRESS(5));        \
  }                                                                                                         \
  static void channel_sums_##kind(void **args) {                                                            \
    cnn_channel_sums_##kind(LONG(0), LONG(1), ADDRESS(2), ADDRESS(3));                                      \
  }                                                                                                         \
  static void transpose_##kind(void **args) { cnn_transpose_##kind(LONG(0), LONG(1), LONG(2), ADDRESS(3), ADDRESS(4)); }

LAST_OF(f32)
LAST_OF(f16)
LAST_OF(bf16)

void cnn_fold(int64_t, void *, int64_t, void *);
static void fold(void **args) { cnn_fold(LONG(0), ADDRESS(1), LONG(2), ADDRESS(3)); }

#define CONVERSION(name)                  \
  void cnn_##name(int64_t, void *, void *); \
  static void name(void **args) { cnn_##name(LONG(0), ADDRESS(1), ADDRESS(2)); }

CONVERSION(f32_to_f16)
CONVERSION(f16_to_f32)
CONVERSION(f32_to_bf16)
CONVERSION(bf16_to_f32)

#define NAMED(name) {"cnn_" #name, name}
static const struct {
  const char *name;
  kernel_type *kernel;
} table[] = {
    NAMED(mse_f32), NAMED(relu_backward_f32), NAMED(relu_backward_bias_f32), NAMED(narrow_f32), NAMED(sgd_f32),
    NAMED(mse_f64), NAMED(relu_backward_f64), NAMED(relu_backward_bias_f64), NAMED(narrow_f64), NAMED(sgd_f64),
    NAMED(bias_gradient_f32), NAMED(bias_gradient_f64), NAMED(relu_backward_nhwc_f32), NAMED(relu_backward_nhwc_f16), NAMED(relu_backward_nhwc_bf16),
    NAMED(channel_sums_f32), NAMED(channel_sums_f16), NAMED(channel_sums_bf16),
    NAMED(transpose_f32), NAMED(transpose_f16), NAMED(transpose_bf16),
    NAMED(fold), NAMED(f32_to_f16), NAMED(f16_to_f32), NAMED(f32_to_bf16), NAMED(bf16_to_f32)};

/* As cuLaunchKernel, with a name and without a stream: grid and block are x, y and z, args the addresses of the
 * arguments. 0, or 1 if there is no kernel of that name. */
int cnn_host_launch(const char *name, const unsigned grid[3], const unsigned block[3], void **args) {
  kernel_type *kernel = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].name, name) == 0) kernel = table[i].kernel;
  if (!kernel) return 1;
  const unsigned sizes[6] = {block[0], block[1], block[2], grid[0], grid[1], grid[2]};
  uint64_t total = 1;
  for (int k = 0; k < 6; k++) total *= sizes[k];
  for (int k = 0; k < 3; k++) cnn_host_ntid[k] = (int)block[k], cnn_host_nctaid[k] = (int)grid[k];
  for (uint64_t step = 0; step < total; step++) {
    uint64_t rest = cnn_host_backwards ? total - 1 - step : step;
    for (int k = 0; k < 6; k++) {
      *(k < 3 ? &cnn_host_tid[k] : &cnn_host_ctaid[k - 3]) = (int)(rest % sizes[k]);
      rest /= sizes[k];
    }
    kernel(args);
  }
  return 0;
}
