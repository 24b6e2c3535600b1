// SPDX-License-Identifier: MIT
// Modules with kernels, and launches. The PTX text is looked at, not compiled: what runs is the PTX that is tracked, as
// C (tests/software_device/ptx_as_c.py), which also says what arguments a kernel has.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "blocks.h"
#include "strict.h"

enum { MAX_GRID_X = 65536, THREADS = 256 };

struct CUmod_st {
   struct object object;
   char *ptx;
};
struct CUfunc_st {
   struct object object;
   const struct CUmod_st *module;
   const struct kernel *kernel;
};

// i integer(8), w integer(4), f real(4), d real(8), p an array that is written, r one that is only read
extern const struct kernel {
   const char *name;
   void (*run)(void **arguments);
   const char *arguments;
} cnn_host_table[];
extern const int cnn_host_kernels;

struct launch {
   const struct kernel *kernel;
   dim3 grid, block;
   union value {
      int64_t i;
      int32_t w;
      float f;
      double d;
      void *p;
   } v[MAX_ARGUMENTS];
};

static const struct kernel *find_kernel(const char *name)
{
   for (int i = 0; i < cnn_host_kernels; i++)
      if (!strcmp(cnn_host_table[i].name, name)) return &cnn_host_table[i];
   return NULL;
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

// As cuda_failed, for the driver, whose statuses have the same numbers
static CUresult forbidden(const char *name)
{
   return (CUresult)capture_forbids_unsafe(name);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
   DRIVER_CALL;
   CUresult unsafe = forbidden(call.name);
   if (unsafe) return unsafe;
   if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
   if (!context_is_bound()) return CUDA_ERROR_INVALID_CONTEXT;
   if (!looks_like_ptx(image)) {
      complain("cuModuleLoadData: this is no PTX text: \"%.20s\"", (const char *)image);
      return CUDA_ERROR_INVALID_PTX;
   }
   if (strstr(image, ".extern .func")) {
      complain("cuModuleLoadData: the PTX text calls a function that it does not define");
      return CUDA_ERROR_INVALID_PTX;
   }
   *module = object_new(A_MODULE, sizeof **module);
   (*module)->ptx = strdup(image);
   return CUDA_SUCCESS;
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

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
   DRIVER_CALL;
   if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
   if (!object_alive(module, A_MODULE, "cuModuleGetFunction")) return CUDA_ERROR_INVALID_HANDLE;
   if (!has_entry(module->ptx, name)) {
      explain("cuModuleGetFunction: the PTX text has no entry %s", name);
      return CUDA_ERROR_NOT_FOUND;
   }
   if (!find_kernel(name)) {
      complain("cuModuleGetFunction: the tracked PTX has no %s", name);
      return CUDA_ERROR_NOT_FOUND;
   }
   *function = object_new(A_KERNEL, sizeof **function);
   (*function)->module = module;
   (*function)->kernel = find_kernel(name);
   return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
   CALL;
   CUresult unsafe = forbidden(call.name);
   if (unsafe) return unsafe;
   if (!object_alive(module, A_MODULE, "cuModuleUnload")) return CUDA_ERROR_INVALID_HANDLE;
   object_end(module);
   return driver_begun(call.planted);
}

// Each array that is there, to the end of its allocation; -1 after a complaint
static int find_ranges(const struct launch *launch, struct range *ranges)
{
   int n = 0;
   for (int i = 0; launch->kernel->arguments[i]; i++) {
      bool write = launch->kernel->arguments[i] == 'p';
      char *at = launch->v[i].p, what[96];
      if ((!write && launch->kernel->arguments[i] != 'r') || !at) continue;
      snprintf(what, sizeof what, "%s: argument %d", launch->kernel->name, i + 1);
      const struct block *b = block_at(at);
      // Those that read four numbers at once; all others begin at any number
      const unsigned multiple = strstr(launch->kernel->name, "cnn_direct") ? 16 : 4;
      if ((uintptr_t)at % multiple) {
         complain("%s: %p is not a multiple of %u", what, (void *)at, multiple);
         return -1;
      }
      if (!device_range(at, 1, current_device, what)) return -1;
      ranges[n++] = (struct range){at, (size_t)(b->address + b->bytes - at), write};
   }
   return n;
}

static void run_launch(void *data)
{
   struct launch *launch = data;
   const unsigned grid[] = {launch->grid.x, launch->grid.y, launch->grid.z};
   const unsigned block[] = {launch->block.x, launch->block.y, launch->block.z};
   void *arguments[MAX_ARGUMENTS];
   for (int i = 0; i < MAX_ARGUMENTS; i++) arguments[i] = &launch->v[i];
   struct range ranges[MAX_RANGES];
   launch_watched(launch->kernel->name, grid, block, arguments, ranges, find_ranges(launch, ranges));
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

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **arguments, void **extra)
{
   DRIVER_CALL;
   const dim3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
   if (!context_is_bound()) return CUDA_ERROR_INVALID_CONTEXT;
   if (!object_alive(function, A_KERNEL, "cuLaunchKernel")) return CUDA_ERROR_INVALID_HANDLE;
   if (!object_alive(function->module, A_MODULE, "cuLaunchKernel: its module")) return CUDA_ERROR_INVALID_HANDLE;
   if (!stream_usable(stream, "cuLaunchKernel")) return CUDA_ERROR_INVALID_HANDLE;
   const char *name = function->kernel->name;
   if (function->module->object.device != current_device) {
      complain("%s: its module is of another device", name);
      return CUDA_ERROR_INVALID_CONTEXT;
   }
   if (!grid_legal(name, grid, block)) return CUDA_ERROR_INVALID_VALUE;
   if (!arguments || extra || shared_bytes) return CUDA_ERROR_INVALID_VALUE;
   struct launch launch = {.kernel = function->kernel, .grid = grid, .block = block};
   copy_arguments(&launch, arguments);
   struct range ranges[MAX_RANGES];
   int n = find_ranges(&launch, ranges);
   if (n < 0) return CUDA_ERROR_INVALID_VALUE;
   int lane = lane_of(stream, current_device);
   cudaError_t status = enqueue(lane, name, ranges, n, run_launch, &launch, sizeof launch);
   if (status) return (CUresult)status;
   tally("kernel launches", 1);
   needs(function->module, A_MODULE);
   return CUDA_SUCCESS;
}
