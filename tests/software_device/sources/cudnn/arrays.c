// SPDX-License-Identifier: MIT
// Packed arrays, and the checks that every operation begins with.
#include "cudnn_device.h"

size_t type_bytes(cudnnDataType_t type)
{
   switch (type) {
   case CUDNN_DATA_FLOAT: return 4;
   case CUDNN_DATA_DOUBLE: return 8;
   case CUDNN_DATA_HALF:
   case CUDNN_DATA_BFLOAT16: return 2;
   default: return 0;
   }
}

size_t array_elements(const struct array *a)
{
   return (size_t)a->dim[0] * (size_t)a->dim[1] * (size_t)a->dim[2] * (size_t)a->dim[3];
}

size_t array_bytes(const struct array *a)
{
   return array_elements(a) * type_bytes(a->type);
}

st check_data(const struct array *a, const void *address, const char *what)
{
   if (!address) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s == nullptr", what);
   if ((uintptr_t)address % 16) {
      complain("%s: %p is not a multiple of 16", what, address);
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
   }
   return device_range(address, array_bytes(a), current_device, what) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static st check_apart(const char *what, const void *y, size_t y_bytes, const void *x, size_t x_bytes)
{
   if (!overlap(y, y_bytes, x, x_bytes)) return CUDNN_STATUS_SUCCESS;
   complain("%s: the result overlaps an operand", what);
   return CUDNN_STATUS_BAD_PARAM;
}

// What is written lies apart from everything else
st check_all_apart(const char *what, const struct range *ranges, int n)
{
   for (int i = 0; i < n; i++)
      for (int j = 0; j < i; j++)
         if (ranges[i].write || ranges[j].write)
            TRY(check_apart(what, ranges[i].address, ranges[i].bytes, ranges[j].address, ranges[j].bytes));
   return CUDNN_STATUS_SUCCESS;
}
