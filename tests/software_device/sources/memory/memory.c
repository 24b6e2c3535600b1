// SPDX-License-Identifier: MIT
// Device memory: closed to the host (PROT_NONE), between guard pages, filled with NaN, never used twice.
//
// An allocation ends at a guard page, rounded up to 256 bytes; the slack holds a canary that is looked at
// when it is freed. Pinned host memory is laid out alike, but open. A touch of closed memory ends the process.
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "blocks.h"

enum { ALIGNMENT = 256, CANARY = 0xA5, FRESH = 0xFF };

static struct block *blocks;
// By addresses: of those that are no device's, most of all, a list of all blocks would be searched to its end
static void *tree;
static size_t in_use[MAX_DEVICES], most;

// Blocks that share an address are the same
static int in_order(const void *left, const void *right)
{
   const struct block *a = left, *b = right;
   return a->mapping + a->mapped <= b->mapping ? -1 : a->mapping >= b->mapping + b->mapped;
}

struct block *block_at(const void *address)
{
   struct block wanted = {.mapping = (char *)address, .mapped = 1}, **found = tfind(&wanted, &tree, in_order);
   return found ? *found : NULL;
}

static cudaError_t allocate(void **address, size_t bytes, bool pinned)
{
   if (!address) return cuda_failed(cudaErrorInvalidValue);
   *address = NULL;
   bind_context();
   if (bytes == 0) return cudaSuccess;
   size_t limit = (size_t)setting("STRICT_MEMORY", 1 << 30), rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
   if (rounded < bytes || (!pinned && in_use[current_device] + rounded > limit)) {
      explain("out of memory: %zu bytes asked, %zu of %zu in use", bytes, in_use[current_device], limit);
      return cuda_failed(cudaErrorMemoryAllocation);
   }
   watch_touches();
   struct block *b = calloc(1, sizeof *b);
   size_t inner = (rounded + PAGE - 1) / PAGE * PAGE;
   b->mapped = inner + 2 * PAGE;
   b->mapping = mmap(NULL, b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
   if (b->mapping == MAP_FAILED) abort();
   b->address = b->mapping + PAGE + inner - rounded;
   b->bytes = bytes;
   b->rounded = rounded;
   b->device = current_device;
   b->pinned = pinned;
   b->live = true;
   mprotect(b->mapping + PAGE, inner, PROT_READ | PROT_WRITE);
   memset(b->mapping + PAGE, CANARY, inner);
   memset(b->address, FRESH, bytes);
   if (!pinned) {
      mprotect(b->mapping + PAGE, inner, PROT_NONE);
      in_use[current_device] += rounded;
      count("device bytes", (int64_t)rounded);
      if (in_use[current_device] > most) count("device bytes, most", (int64_t)(in_use[current_device] - most));
      if (in_use[current_device] > most) most = in_use[current_device];
   }
   b->next = blocks;
   blocks = b;
   if (!tsearch(b, &tree, in_order)) abort();
   *address = b->address;
   return cudaSuccess;
}

static void check_canary(const struct block *b)
{
   for (const char *p = b->mapping + PAGE; p < b->mapping + b->mapped - PAGE; p++) {
      if (p == b->address) p += b->bytes;
      if (p >= b->mapping + b->mapped - PAGE || (unsigned char)*p == CANARY) continue;
      complain("free: byte %ld of an allocation of %zu was written", (long)(p - b->address), b->bytes);
      return;
   }
}

static cudaError_t release(const char *name, void *address, bool pinned)
{
   if (!address) return cudaSuccess;
   struct block *b = block_at(address);
   if (!b || b->address != address || b->pinned != pinned || !b->live) {
      complain("%s: %p is %s", name, address,
               !b ? "no memory of this device" : !b->live ? "already free" : b->address != address
               ? "not the start of an allocation" : "of the other kind");
      return cuda_failed(cudaErrorInvalidValue);
   }
   if (b->device != current_device && !pinned) {
      complain("%s: memory of device %d, current device %d", name, b->device, current_device);
      return cuda_failed(cudaErrorInvalidValue);
   }
   bool busy = pinned && pending_use(b->address, b->bytes);
   if (busy) complain("%s: a copy of this memory has not been waited for", name);
   finish_device(b->device);
   count("device synchronisations", 1);
   mprotect(b->mapping, b->mapped, PROT_READ | PROT_WRITE);
   check_canary(b);
   madvise(b->mapping, b->mapped, MADV_DONTNEED);
   mprotect(b->mapping, b->mapped, PROT_NONE);
   b->live = false;
   if (!pinned) {
      in_use[b->device] -= b->rounded;
      count("device bytes", -(int64_t)b->rounded);
   }
   return busy ? cuda_failed(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaMalloc(void **address, size_t bytes)
{
   CUDA_UNSAFE_CALL;
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   return allocate(address, bytes, false);
}

cudaError_t cudaFree(void *address)
{
   CALL;
   cudaError_t unsafe = capture_forbids_unsafe(call.name);
   if (unsafe) return cuda_failed(unsafe);
   cudaError_t status = release("cudaFree", address, false), begun = cuda_begun(call.planted);
   return begun ? begun : status;
}

cudaError_t cudaMallocHost(void **address, size_t bytes)
{
   CUDA_UNSAFE_CALL;
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   return allocate(address, bytes, true);
}

cudaError_t cudaFreeHost(void *address)
{
   CALL;
   cudaError_t unsafe = capture_forbids_unsafe(call.name);
   if (unsafe) return cuda_failed(unsafe);
   cudaError_t status = release("cudaFreeHost", address, true), begun = cuda_begun(call.planted);
   return begun ? begun : status;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
   CUDA_CALL;
   if (!unused || !total) return cuda_failed(cudaErrorInvalidValue);
   if (current_device >= device_count()) return cuda_failed(cudaErrorNoDevice);
   bind_context();
   *total = (size_t)setting("STRICT_MEMORY", 1 << 30);
   *unused = *total - in_use[current_device];
   return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
   CUDA_CALL;
   if (!attributes || !address) return cuda_failed(cudaErrorInvalidValue);
   memset(attributes, 0, sizeof *attributes);
   const struct block *b = block_at(address);
   if (!b || !b->live || (char *)address < b->address || (char *)address >= b->address + b->bytes) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = (void *)address;
      return cudaSuccess;
   }
   attributes->type = b->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
   attributes->device = b->device;
   attributes->devicePointer = (void *)address;
   attributes->hostPointer = b->pinned ? (void *)address : NULL;
   return cudaSuccess;
}

int blocks_alive(bool pinned)
{
   int n = 0;
   for (const struct block *b = blocks; b; b = b->next) n += b->live && b->pinned == pinned;
   return n;
}
