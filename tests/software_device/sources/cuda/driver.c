// SPDX-License-Identifier: MIT
// The few driver functions that the project asks for the device's name; those about contexts are in contexts.c.
#include <stdio.h>
#include "device.h"

static bool initialised;

CUresult driver_begun(int planted)
{
   if (planted) return (CUresult)planted;
   return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuInit(unsigned int flags)
{
   CALL;
   if (call.planted) return (CUresult)call.planted;
   if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
   if (device_count() == 0) return CUDA_ERROR_NO_DEVICE;
   initialised = true;
   return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
   CALL;
   if (call.planted) return (CUresult)call.planted;
   if (!version) return CUDA_ERROR_INVALID_VALUE;
   *version = setting("STRICT_DRIVER_VERSION", 13000);
   return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
   CALL;
   if (call.planted) return (CUresult)call.planted;
   if (!device) return CUDA_ERROR_INVALID_VALUE;
   if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
   if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
   *device = ordinal;
   return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
   CALL;
   if (call.planted) return (CUresult)call.planted;
   if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
   if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
   if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
   snprintf(name, (size_t)length, "strict software device (no GPU)");
   return CUDA_SUCCESS;
}
