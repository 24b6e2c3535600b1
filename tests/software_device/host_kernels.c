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

/* All kernels by their names, which tests/software_device/ptx_as_c.py finds in the PTX */
extern const struct {
  const char *name;
  void (*kernel)(void **args);
  const char *arguments; /* a letter for each, see `signature` there */
} cnn_host_table[];
extern const int cnn_host_kernels;

/* As cuLaunchKernel, with a name and without a stream: grid and block are x, y and z, args the addresses of the
 * arguments. 0, or 1 if there is no kernel of that name. */
int cnn_host_launch(const char *name, const unsigned grid[3], const unsigned block[3], void **args) {
  void (*kernel)(void **) = 0;
  for (int i = 0; i < cnn_host_kernels; i++)
    if (strcmp(cnn_host_table[i].name, name) == 0) kernel = cnn_host_table[i].kernel;
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
