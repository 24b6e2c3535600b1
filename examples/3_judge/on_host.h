// What train_cuda.cu needs of CUDA, by threads of the CPU: for a machine without a GPU, and for tests of the kernels.
// The blocks of a launch follow each other; the threads of a block are threads, and __syncthreads is their barrier.
#pragma once

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#define __global__
#define __shared__ static  // one block at a time

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
inline std::optional<std::barrier<>> threads_of_block;

inline void __syncthreads() { threads_of_block->arrive_and_wait(); }

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

inline cudaError_t cudaMalloc(float** data, std::size_t bytes) {
  *data = static_cast<float*>(std::malloc(bytes));
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);  // NaN, so that nothing depends on what was there
  return cudaSuccess;
}

inline cudaError_t cudaFree(float* data) { return std::free(data), cudaSuccess; }

inline cudaError_t cudaMemset(float* data, int byte, std::size_t bytes) {
  return std::memset(data, byte, bytes), cudaSuccess;
}

inline cudaError_t cudaMemcpy(float* to, const float* from, std::size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  threads_of_block.emplace(block.x * block.y);
  const auto thread = [=](dim3 index) {
    threadIdx = index, blockDim = block, gridDim = grid;
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y);
        kernel(arguments...);
        __syncthreads();
      }
  };
  std::vector<std::thread> threads;
  for (unsigned y = 0; y < block.y; ++y)
    for (unsigned x = 0; x < block.x; ++x) threads.emplace_back(thread, dim3(x, y));
  for (std::thread& one : threads) one.join();
}
