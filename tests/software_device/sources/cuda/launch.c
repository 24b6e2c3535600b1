// SPDX-License-Identifier: MIT
// Kernel libraries and launches. The PTX text is looked at, not compiled: what runs is the same source
// compiled for the host (tests/software_device/host_kernels.c), when the library was built with it.
#include <stdlib.h>
#include <string.h>
#include "device.h"
#include "strict.h"

enum { MAX_GRID_X = 65536, THREADS = 256 };

struct CUlib_st {
   struct object object;
   char *ptx;
};
struct CUkern_st {
   struct object object;
   const struct CUlib_st *library;
   const struct kernel *kernel;
};

__attribute__((weak)) int cnn_host_launch(const char *name, const unsigned grid[3], const unsigned block[3],
                                          void **arguments);

int strict_has_kernels(void)
{
   return cnn_host_launch != NULL;
}

// PTX starts with comments, then the .version, .target and .address_size directives (PTX ISA reference)
static bool looks_like_ptx(const char *text)
{
   while (*text == ' ' || *text == '\n' || *text == '\t' || !strncmp(text, "//", 2)) {
      if (*text == '/') text += strcspn(text, "\n");
      else text++;
   }
   return !strncmp(text, ".version ", 9) && strstr(text, "\n.target sm_") && strstr(text, "\n.address_size 64");
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit_options,
                                void **jit_values, unsigned int jit_count, enum cudaLibraryOption *options,
                                void **values, unsigned int n)
{
   CUDA_UNSAFE_CALL;
   if (!library || !code || (jit_count && (!jit_options || !jit_values)) || (n && (!options || !values)))
      return cuda_failed(cudaErrorInvalidValue);
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   if (!looks_like_ptx(code)) {
      complain("cudaLibraryLoadData: this is no PTX text: \"%.20s\"", (const char *)code);
      return cuda_failed(cudaErrorInvalidPtx);
   }
   if (strstr(code, ".extern .func")) {
      complain("cudaLibraryLoadData: the PTX text calls a function that it does not define");
      return cuda_failed(cudaErrorInvalidPtx);
   }
   if (!strict_has_kernels()) {
      explain("cudaLibraryLoadData: this software device was built without the project's kernels");
      return cuda_failed(cudaErrorNotSupported);
   }
   *library = object_new(A_LIBRARY, sizeof **library);
   (*library)->ptx = strdup(code);
   return cudaSuccess;
}

static bool has_entry(const char *ptx, const char *name)
{
   const char *entry = ".visible .entry ";
   for (const char *at = strstr(ptx, entry); at; at = strstr(at, entry)) {
      at += strlen(entry);
      size_t length = strlen(name);
      if (!strncmp(at, name, length) && (at[length] == '(' || at[length] == ' ')) return true;
   }
   return false;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
   CUDA_CALL;
   if (!kernel || !name) return cuda_failed(cudaErrorInvalidValue);
   if (!object_alive(library, A_LIBRARY, "cudaLibraryGetKernel")) return cuda_failed(cudaErrorInvalidResourceHandle);
   if (!has_entry(library->ptx, name)) {
      explain("cudaLibraryGetKernel: the PTX text has no entry %s", name);
      return cuda_failed(cudaErrorSymbolNotFound);
   }
   if (!find_kernel(name)) {
      complain("cudaLibraryGetKernel: kernels.c of this device does not know %s", name);
      return cuda_failed(cudaErrorSymbolNotFound);
   }
   *kernel = object_new(A_KERNEL, sizeof **kernel);
   (*kernel)->library = library;
   (*kernel)->kernel = find_kernel(name);
   return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
   CALL;
   cudaError_t unsafe = capture_forbids_unsafe(call.name);
   if (unsafe) return cuda_failed(unsafe);
   if (!object_alive(library, A_LIBRARY, "cudaLibraryUnload")) return cuda_failed(cudaErrorInvalidResourceHandle);
   object_end(library);
   return cuda_begun(call.planted);
}

static void run_launch(void *data)
{
   struct launch *launch = data;
   const unsigned grid[] = {launch->grid.x, launch->grid.y, launch->grid.z};
   const unsigned block[] = {launch->block.x, launch->block.y, launch->block.z};
   void *arguments[12];
   for (int i = 0; i < 12; i++) arguments[i] = &launch->v[i];
   if (cnn_host_launch(launch->kernel->name, grid, block, arguments) != 0)
      complain("%s: not among the kernels built for the host", launch->kernel->name);
}

static bool grid_legal(const char *name, dim3 grid, dim3 block)
{
   if (block.x != THREADS || block.y != 1 || block.z != 1) {
      complain("%s: blocks of %u x %u x %u threads, the kernels are written for 256 x 1 x 1", name, block.x, block.y,
               block.z);
      return false;
   }
   if (!grid.x || !grid.y || !grid.z || grid.x > MAX_GRID_X || grid.y > 65535 || grid.z > 65535) {
      complain("%s: a grid of %u x %u x %u blocks", name, grid.x, grid.y, grid.z);
      return false;
   }
   return true;
}

// ReLU backward may put its result where one of its operands was
static bool in_place(const char *name, const struct range *a, const struct range *b)
{
   return strstr(name, "relu_backward") && a->address == b->address && a->bytes == b->bytes;
}

static bool ranges_legal(const char *name, const struct range *ranges, int n)
{
   char what[96];
   for (int i = 0; i < n; i++) {
      strcat(strncpy(what, name, 64), ": an array");
      if ((uintptr_t)ranges[i].address % 16) {
         complain("%s: %p is not a multiple of 16", what, ranges[i].address);
         return false;
      }
      if (!device_range(ranges[i].address, ranges[i].bytes, current_device, what)) return false;
      for (int j = 0; j < i; j++)
         if ((ranges[i].write || ranges[j].write) && !in_place(name, &ranges[i], &ranges[j]) &&
             overlap(ranges[i].address, ranges[i].bytes, ranges[j].address, ranges[j].bytes)) {
            complain("%s: arrays %d and %d overlap", name, j + 1, i + 1);
            return false;
         }
   }
   return true;
}

static void copy_arguments(struct launch *launch, void **arguments)
{
   for (int i = 0; launch->kernel->arguments[i]; i++) switch (launch->kernel->arguments[i]) {
      case 'i': launch->v[i].i = *(int64_t *)arguments[i]; break;
      case 'w': launch->v[i].w = *(int32_t *)arguments[i]; break;
      case 'f': launch->v[i].f = *(float *)arguments[i]; break;
      case 'd': launch->v[i].d = *(double *)arguments[i]; break;
      default: launch->v[i].p = *(void **)arguments[i];
      }
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                             cudaStream_t stream)
{
   CUDA_CALL;
   const struct CUkern_st *kernel = function;
   if (!object_alive(kernel, A_KERNEL, "cudaLaunchKernel")) return cuda_failed(cudaErrorInvalidDeviceFunction);
   if (!object_alive(kernel->library, A_LIBRARY, "cudaLaunchKernel: its library"))
      return cuda_failed(cudaErrorInvalidDeviceFunction);
   if (!stream_usable(stream, "cudaLaunchKernel")) return cuda_failed(cudaErrorInvalidResourceHandle);
   const char *name = kernel->kernel->name;
   if (!grid_legal(name, grid, block)) return cuda_failed(cudaErrorInvalidConfiguration);
   if (!arguments || shared_bytes) return cuda_failed(cudaErrorInvalidValue);
   struct launch launch = {.kernel = kernel->kernel, .grid = grid, .block = block};
   copy_arguments(&launch, arguments);
   struct range ranges[MAX_RANGES];
   int n = launch.kernel->ranges(&launch, ranges);
   if (n < 0 || !ranges_legal(name, ranges, n)) return cuda_failed(cudaErrorInvalidValue);
   int lane = lane_of(stream, current_device);
   cudaError_t status = enqueue(lane, name, ranges, n, run_launch, &launch, sizeof launch);
   if (status) return cuda_failed(status);
   tally("kernel launches", 1);
   needs(kernel->library, A_LIBRARY);
   return cudaSuccess;
}
