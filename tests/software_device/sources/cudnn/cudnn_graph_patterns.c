// SPDX-License-Identifier: MIT
// An operation graph: whether its operations fit together, and which of the known patterns it is.
//
// Known are a convolution, forward with a bias and a ReLU behind it, a data gradient with a ReLU's gradient, and a sum
// over all but the channels; operations in the order in which they are computed. cuDNN knows more.
#include <string.h>
#include "cudnn_graph.h"

static bool same_tensor(const struct graph_tensor *a, const struct graph_tensor *b)
{
   return a->is_virtual == b->is_virtual && a->type == b->type && a->layouts == b->layouts &&
          a->alignment == b->alignment && !memcmp(a->dim, b->dim, sizeof a->dim);
}

struct uses {
   const struct graph_tensor *tensor;
   int writers, readers;
};

static st use(struct uses *all, int *n, const struct graph_tensor *t, bool write)
{
   int i = 0;
   if (!t->used) return CUDNN_STATUS_SUCCESS;
   while (i < *n && all[i].tensor->id != t->id) i++;
   if (i == *n) all[(*n)++] = (struct uses){t, 0, 0};
   if (!same_tensor(all[i].tensor, t))
      return refuse(CUDNN_STATUS_BAD_PARAM, "operation graph: two tensors have the unique id %lld", (long long)t->id);
   if (!t->layouts)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor %lld: strides of neither NCHW nor NHWC",
                    (long long)t->id);
   *(write ? &all[i].writers : &all[i].readers) += 1;
   return CUDNN_STATUS_SUCCESS;
}

static st check_uses(const struct operation *operations, int n)
{
   struct uses all[3 * MAX_OPERATIONS];
   int tensors = 0;
   for (int i = 0; i < n; i++) {
      TRY(use(all, &tensors, &operations[i].from[0], false));
      TRY(use(all, &tensors, &operations[i].from[1], false));
      TRY(use(all, &tensors, &operations[i].to, true));
   }
   for (int i = 0; i < tensors; i++) {
      long long id = (long long)all[i].tensor->id;
      if (all[i].writers > 1) return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: written by two operations", id);
      if (all[i].tensor->is_virtual && (!all[i].writers || !all[i].readers))
         return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: virtual, but never %s", id,
                       all[i].writers ? "read" : "written");
   }
   return CUDNN_STATUS_SUCCESS;
}

bool is_fused(const struct pattern *p)
{
   return p->relu || p->bias.set || p->at[AT_MASK].used;
}

enum place place_of_result(const struct pattern *p)
{
   return p->sum || p->g.pass == FORWARD ? AT_Y : p->g.pass == BACKWARD_DATA ? AT_X : AT_W;
}

// Each operation behind the first takes the virtual result of the one before
static bool is_chain(const struct operation *operations, int n)
{
   for (int i = 1; i < n; i++) {
      const struct operation *o = &operations[i];
      const struct graph_tensor *from = &o->from[o->kind == RELU_BACKWARD];
      if (!operations[i - 1].to.is_virtual || from->id != operations[i - 1].to.id) return false;
   }
   return !operations[n - 1].to.is_virtual;
}

static bool is_pattern(const struct operation *operations, int n)
{
   enum operation_kind second = n > 1 ? operations[1].kind : SUM, third = n > 2 ? operations[2].kind : SUM;
   if (n == 1) return operations[0].kind <= TO_W || operations[0].kind == SUM;
   switch (operations[0].kind) {
   case TO_Y: return n == 2 ? second == ADD || second == RELU : n == 3 && second == ADD && third == RELU;
   case TO_X: return n == 2 && second == RELU_BACKWARD;
   default: return false;
   }
}

static void place(const struct operation *first, const struct graph_tensor *result, struct pattern *p)
{
   const struct graph_tensor *a = &first->from[0], *b = &first->from[1];
   switch (first->kind) {
   case TO_Y: p->at[AT_X] = *a, p->at[AT_W] = *b; break;
   case TO_X: p->at[AT_W] = *a, p->at[AT_Y] = *b; break;
   case TO_W: p->at[AT_X] = *a, p->at[AT_Y] = *b; break;
   default: p->at[AT_X] = *a; p->sum = true;
   }
   p->g.pass = p->sum ? FORWARD : (enum pass)first->kind;
   p->g.conv = first->conv;
   p->alpha = p->sum ? 1 : first->alpha;
   p->beta = p->sum ? 0 : first->beta;
   p->at[place_of_result(p)] = *result;
}

static bool is_row(const int dim[4], int channels)
{
   return dim[0] == 1 && dim[1] == channels && dim[2] == 1 && dim[3] == 1;
}

static bool types_fit(const struct operation *operations, int n, const struct pattern *p)
{
   cudnnDataType_t type = p->at[AT_X].type, compute = type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT;
   for (int i = 0; i < n; i++) {
      if (operations[i].compute != compute) return false;
      if (operations[i].to.is_virtual && operations[i].to.type != compute) return false;
   }
   for (enum place i = 0; i < PLACES; i++) {
      bool may_be_wider = i == AT_BIAS || (p->sum && i == AT_Y);
      cudnnDataType_t found = p->at[i].type;
      if (p->at[i].used && found != type && !(may_be_wider && found == compute)) return false;
   }
   return true;
}

void recognise(const struct operation *operations, int n, struct pattern *p)
{
   const struct operation *last = &operations[n - 1];
   if (!is_pattern(operations, n) || !is_chain(operations, n)) return;
   place(&operations[0], &last->to, p);
   p->layouts = ~0u;
   for (int i = 0; i < n; i++) {
      const struct operation *o = &operations[i];
      if (o->kind == ADD) p->at[AT_BIAS] = o->from[1];
      if (o->kind == RELU_BACKWARD) p->at[AT_MASK] = o->from[0];
      p->relu = p->relu || o->kind == RELU;
      p->nan = o->nan;
      if (o->to.is_virtual) p->virtual_ids[p->n_virtual++] = o->to.id;
      p->layouts &= o->to.layouts;
   }
   bool small = true;
   for (enum place i = 0; i < PLACES; i++) {
      if (!p->at[i].used) continue;
      struct array a = array_of(&p->at[i], CUDNN_TENSOR_NCHW);
      small = small && array_elements(&a) < (size_t)1 << 31;
      p->layouts &= p->at[i].layouts;
   }
   if (!p->layouts || !small || !types_fit(operations, n, p)) return;
   cudnnTensorFormat_t format = p->layouts & 1u << CUDNN_TENSOR_NCHW ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
   p->g.x = array_of(&p->at[AT_X], format);
   p->g.y = array_of(&p->at[AT_Y], format);
   if (!p->sum) p->g.w = array_of(&p->at[AT_W], format);
   if (p->at[AT_BIAS].used) p->bias = array_of(&p->at[AT_BIAS], format);
   if (p->bias.set && !is_row(p->bias.dim, p->g.y.dim[1])) return;
   p->known = !p->sum || is_row(p->g.y.dim, p->g.x.dim[1]);
}

st finalize_graph(struct part *part)
{
   int64_t n;
   struct part *const *parts = elements_of(part, CUDNN_ATTR_OPERATIONGRAPH_OPS, &n);
   struct operation operations[MAX_OPERATIONS];
   for (int64_t i = 0; i < n; i++) operations[i] = parts[i]->content->operation;
   TRY(check_uses(operations, (int)n));
   recognise(operations, (int)n, &part->content->pattern);
   return CUDNN_STATUS_SUCCESS;
}
