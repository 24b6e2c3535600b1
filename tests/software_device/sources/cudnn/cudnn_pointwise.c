// SPDX-License-Identifier: MIT
// cuDNN's activation, AddTensor and bias gradient.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_device.h"

enum { OPERANDS = 1 };

struct pointwise_job {
   struct array a[OPERANDS], c; // operands, result
   const void *from[OPERANDS];
   void *to;
   int operands;
   double alpha[OPERANDS], beta;
   struct activation activation;
};

// Element i of c, in an operand of which a dimension may be 1
static double broadcast(const struct array *a, const double *values, const struct array *c, size_t i)
{
   size_t at = 0, place[4];
   for (int d = 3; d >= 0; d--) {
      place[d] = i % (size_t)c->dim[d];
      i /= (size_t)c->dim[d];
   }
   for (int d = 0; d < 4; d++) at = at * (size_t)a->dim[d] + (a->dim[d] == 1 ? 0 : place[d]);
   return values[at];
}

static bool broadcasts(const struct array *a, const struct array *c)
{
   for (int d = 0; d < 4; d++)
      if (a->dim[d] != 1 && a->dim[d] != c->dim[d]) return false;
   return a->type == c->type && (a->format == c->format || (a->dim[2] == 1 && a->dim[3] == 1));
}

// Every operand lies apart from the result, or (where allowed) is the very same array
static st submit(hd h, const char *name, struct pointwise_job *job, work *run)
{
   struct range ranges[OPERANDS + 1] = {{job->to, array_bytes(&job->c), true}};
   TRY(check_data(&job->c, job->to, name));
   for (int i = 0; i < job->operands; i++) {
      TRY(check_data(&job->a[i], job->from[i], name));
      bool same = job->from[i] == job->to && same_shape(&job->a[i], &job->c);
      if (!same) TRY(check_apart(name, job->to, array_bytes(&job->c), job->from[i], array_bytes(&job->a[i])));
      ranges[i + 1] = (struct range){job->from[i], array_bytes(&job->a[i]), false};
   }
   return queue_work(h, name, ranges, job->operands + 1, run, job, sizeof *job);
}

static st operand(struct pointwise_job *job, td d, in address, const char *what)
{
   TRY(check_tensor(d, what));
   job->a[job->operands] = d->array;
   job->from[job->operands++] = address;
   return CUDNN_STATUS_SUCCESS;
}

static st result(struct pointwise_job *job, td d, out address, in beta, const char *what)
{
   TRY(check_tensor(d, what));
   job->c = d->array;
   job->to = address;
   return read_scalar(beta, d->array.type, "beta", &job->beta);
}

static void begin(const struct pointwise_job *job, double **values, double **to)
{
   for (int i = 0; i < job->operands; i++) values[i] = load_array(&job->a[i], job->from[i]);
   *to = calloc(array_elements(&job->c), sizeof(double));
}

static void end(const struct pointwise_job *job, double **values, double *to)
{
   store_array(&job->c, 1, to, job->beta, job->to);
   for (int i = 0; i < job->operands; i++) free(values[i]);
   free(to);
}

static void run_activation(void *data)
{
   const struct pointwise_job *job = data;
   double *from[OPERANDS], *to;
   begin(job, from, &to);
   for (size_t i = 0; i < array_elements(&job->c); i++) to[i] = job->alpha[0] * activate(&job->activation, from[0][i]);
   end(job, from, to);
}

st cudnnActivationForward(hd h, cudnnActivationDescriptor_t activation, in alpha, td xd, in x, in beta, td yd, out y)
{
   CUDNN_CALL;
   struct pointwise_job job = {0};
   TRY(check_handle(h, call.name));
   TRY(check_activation(activation));
   TRY(operand(&job, xd, x, "xDesc"));
   TRY(result(&job, yd, y, beta, "yDesc"));
   TRY(read_scalar(alpha, job.c.type, "alpha", &job.alpha[0]));
   if (!same_shape(&job.a[0], &job.c)) return refuse(CUDNN_STATUS_BAD_PARAM, "xDesc and yDesc differ");
   job.activation = activation->activation;
   if (job.activation.mode >= CUDNN_ACTIVATION_IDENTITY) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this activation");
   return submit(h, call.name, &job, run_activation);
}

static void run_add(void *data)
{
   const struct pointwise_job *job = data;
   double *from[OPERANDS], *to;
   begin(job, from, &to);
   for (size_t i = 0; i < array_elements(&job->c); i++)
      to[i] = job->alpha[0] * broadcast(&job->a[0], from[0], &job->c, i);
   end(job, from, to);
}

st cudnnAddTensor(hd h, in alpha, td ad, in a, in beta, td c_d, out c)
{
   CUDNN_CALL;
   struct pointwise_job job = {0};
   TRY(check_handle(h, call.name));
   TRY(operand(&job, ad, a, "aDesc"));
   TRY(result(&job, c_d, c, beta, "cDesc"));
   TRY(read_scalar(alpha, job.c.type, "alpha", &job.alpha[0]));
   if (!broadcasts(&job.a[0], &job.c)) return refuse(CUDNN_STATUS_BAD_PARAM, "aDesc does not fit cDesc");
   return submit(h, call.name, &job, run_add);
}

static void run_bias_gradient(void *data)
{
   const struct pointwise_job *job = data;
   double *from[OPERANDS], *to;
   begin(job, from, &to);
   const int *dim = job->a[0].dim;
   size_t pixels = (size_t)(dim[2] * dim[3]);
   for (size_t i = 0; i < array_elements(&job->a[0]); i++)
      to[i / pixels % (size_t)dim[1]] += job->alpha[0] * from[0][i];
   end(job, from, to);
}

st cudnnConvolutionBackwardBias(hd h, in alpha, td dyd, in dy, in beta, td dbd, out db)
{
   CUDNN_CALL;
   struct pointwise_job job = {0};
   TRY(check_handle(h, call.name));
   TRY(operand(&job, dyd, dy, "dyDesc"));
   TRY(result(&job, dbd, db, beta, "dbDesc"));
   TRY(read_scalar(alpha, job.c.type, "alpha", &job.alpha[0]));
   const int *b = job.c.dim;
   if (b[0] != 1 || b[1] != job.a[0].dim[1] || b[2] != 1 || b[3] != 1 || job.c.type != job.a[0].type)
      return refuse(CUDNN_STATUS_BAD_PARAM, "dbDesc is %d %d %d %d, expected 1 %d 1 1 of dyDesc's data type", b[0],
                    b[1], b[2], b[3], job.a[0].dim[1]);
   // cuDNN 9 has kernels for float, double and half
   if (job.c.type > CUDNN_DATA_HALF) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a bias gradient of bfloat16");
   return submit(h, call.name, &job, run_bias_gradient);
}
