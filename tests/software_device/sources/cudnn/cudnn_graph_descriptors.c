// SPDX-License-Identifier: MIT
// Descriptors of cuDNN's graph API: made, filled in, finalized and destroyed.
#include <stdlib.h>
#include <string.h>
#include "cudnn_graph.h"

st check_part_alive(const void *address, const char *what)
{
   if (!address) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: descriptor == nullptr", what);
   return object_alive(address, A_GRAPH_PART, what) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static void release(struct part *part)
{
   for (int i = 0; i < part->kind->n; i++) free(part->slots[i].elements);
   free(part->slots);
   free(part->content);
   part->slots = NULL;
   part->content = NULL;
}

st cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor)
{
   CUDNN_CALL;
   const struct part_kind *kind = find_kind(type);
   if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor == nullptr");
   if (!kind) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type %d are not in this device", (int)type);
   struct part *part = object_new(A_GRAPH_PART, sizeof *part);
   part->kind = kind;
   part->slots = calloc((size_t)kind->n, sizeof *part->slots);
   *descriptor = part;
   return CUDNN_STATUS_SUCCESS;
}

st cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
   CALL;
   TRY(check_part_alive(descriptor, call.name));
   release(descriptor);
   object_end(descriptor);
   return (st)call.planted;
}

static bool is_operation(cudnnBackendDescriptorType_t type)
{
   return (type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
           type <= CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) ||
          type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
}

st check_part_kind(const void *address, int type, const char *what)
{
   TRY(check_part_alive(address, what));
   const struct part *part = address;
   if (type == ANY_OPERATION ? is_operation(part->kind->type) : (int)part->kind->type == type)
      return CUDNN_STATUS_SUCCESS;
   const struct part_kind *expected = find_kind((cudnnBackendDescriptorType_t)type);
   complain("%s: found a descriptor of the kind %s, expected %s", what, part->kind->name,
            expected ? expected->name : "an operation");
   return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
}

st check_part(const void *address, int type, const char *what)
{
   TRY(check_part_kind(address, type, what));
   if (!((const struct part *)address)->finalized)
      return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "%s: the descriptor is not finalized", what);
   return CUDNN_STATUS_SUCCESS;
}

st look_up(const struct part *part, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int *place)
{
   *place = find_attribute(part->kind, name);
   if (*place < 0)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d is none of its own", part->kind->name, (int)name);
   const struct attribute *a = &part->kind->attributes[*place];
   if (type != a->type && (a->type != CUDNN_TYPE_FLOAT || type != CUDNN_TYPE_DOUBLE))
      return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "%s: %s: attribute type %d, expected %d", part->kind->name,
                    a->what, (int)type, (int)a->type);
   return CUDNN_STATUS_SUCCESS;
}

st check_host(const struct part *part, const struct attribute *a, const void *elements)
{
   if (!elements)
      return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: %s: arrayOfElements == nullptr", part->kind->name,
                    a->what);
   if (!is_device_memory(elements)) return CUDNN_STATUS_SUCCESS;
   complain("%s: %s: the elements lie on the host, found device memory", part->kind->name, a->what);
   return CUDNN_STATUS_BAD_PARAM;
}

st cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t n, const void *elements)
{
   CUDNN_CALL;
   int place;
   TRY(check_part_alive(descriptor, call.name));
   struct part *part = descriptor;
   if (part->finalized)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: already finalized, attribute %d cannot be set", part->kind->name,
                    (int)name);
   TRY(look_up(part, name, type, &place));
   const struct attribute *a = &part->kind->attributes[place];
   if (a->need == RESULT) return refuse(CUDNN_STATUS_BAD_PARAM, "%s: %s is a result", part->kind->name, a->what);
   if (n < a->least || n > a->most)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: %s: %lld elements, expected %d to %d", part->kind->name, a->what,
                    (long long)n, a->least, a->most);
   TRY(check_host(part, a, elements));
   TRY(check_elements(a, n, elements));
   size_t bytes = (size_t)n * element_bytes(type);
   void *copy = malloc(bytes + sizeof(double));
   memcpy(copy, elements, bytes);
   if (type == CUDNN_TYPE_FLOAT) *(double *)copy = (double)*(const float *)elements;
   free(part->slots[place].elements);
   part->slots[place] = (struct slot){n, copy};
   return CUDNN_STATUS_SUCCESS;
}

// Everything required is there, and what it refers to still is
static st check_complete(const struct part *part)
{
   for (int i = 0; i < part->kind->n; i++) {
      const struct attribute *a = &part->kind->attributes[i];
      const struct slot *slot = &part->slots[i];
      if (a->need == REQUIRED && !slot->elements)
         return refuse(CUDNN_STATUS_BAD_PARAM, "%s: %s was not set", part->kind->name, a->what);
      if (slot->elements) TRY(check_elements(a, slot->n, slot->elements));
   }
   return CUDNN_STATUS_SUCCESS;
}

st cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
   CUDNN_CALL;
   TRY(check_part_alive(descriptor, call.name));
   struct part *part = descriptor;
   if (part->finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "%s: already finalized", part->kind->name);
   TRY(check_complete(part));
   part->content = calloc(1, sizeof *part->content);
   st status = part->kind->finalize(part);
   if (status == CUDNN_STATUS_SUCCESS) {
      part->finalized = true;
      return status;
   }
   free(part->content);
   part->content = NULL;
   return status;
}

const void *elements_of(const struct part *part, cudnnBackendAttributeName_t name, int64_t *n)
{
   const struct slot *slot = &part->slots[find_attribute(part->kind, name)];
   if (n) *n = slot->elements ? slot->n : 0;
   return slot->elements;
}

int64_t integer_of(const struct part *part, cudnnBackendAttributeName_t name, int64_t otherwise)
{
   const struct attribute *a = &part->kind->attributes[find_attribute(part->kind, name)];
   const void *elements = elements_of(part, name, NULL);
   if (!elements) return otherwise;
   if (a->type == CUDNN_TYPE_INT64) return *(const int64_t *)elements;
   return a->type == CUDNN_TYPE_BOOLEAN ? *(const unsigned char *)elements : *(const int *)elements;
}

double number_of(const struct part *part, cudnnBackendAttributeName_t name, double otherwise)
{
   const double *elements = elements_of(part, name, NULL);
   return elements ? *elements : otherwise;
}

const struct part *part_of(const struct part *part, cudnnBackendAttributeName_t name)
{
   struct part *const *elements = elements_of(part, name, NULL);
   return elements ? *elements : NULL;
}
