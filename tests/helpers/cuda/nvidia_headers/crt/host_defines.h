/* SPDX-License-Identifier: MIT
 * Stands in for a header that NVIDIA ships in another package (nvidia-cuda-crt): annotations of its compilers, without
 * meaning to a C compiler. Found only where the real one is not. */
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __device__
#define __global__
#define __host__
#define __no_return__
