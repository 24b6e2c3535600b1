// SPDX-License-Identifier: MIT
// cuDNN's convolution calls: checked here, queued on the handle's stream, run later by convolution_math.c.
#include <string.h>
#include "cudnn_device.h"

st cudnnGetConvolution2dForwardOutputDim(cd conv, td x, fd w, int *n, int *c, int *h, int *wide)
{
   CUDNN_CALL;
   TRY(check_convolution(conv));
   TRY(check_tensor(x, "inputTensorDesc"));
   TRY(check_filter(w, "filterDesc"));
   if (!n || !c || !h || !wide) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a result is nullptr");
   int dim[4];
   TRY(output_shape(&conv->convolution, &x->array, &w->array, dim));
   *n = dim[0];
   *c = dim[1];
   *h = dim[2];
   *wide = dim[3];
   return CUDNN_STATUS_SUCCESS;
}

static st check_space(const struct algorithm *a, void *space, size_t bytes)
{
   if (bytes < a->workspace || (a->workspace && !space))
      return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                    "workspace: found %zu bytes, algorithm %d needs %zu", space ? bytes : 0, a->algo, a->workspace);
   if (!space) return CUDNN_STATUS_SUCCESS;
   if ((uintptr_t)space % 16) {
      complain("workspace: %p is not a multiple of 16", space);
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
   }
   return device_range(space, bytes, current_device, "workspace") ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// Checks every pointer of the job, then queues it
st submit_convolution(hd h, const char *name, struct convolution_job *job, int algo, void *space, size_t bytes)
{
   const struct geometry *g = &job->g;
   struct algorithm a = algorithm_for(g, algo);
   if (a.status != CUDNN_STATUS_SUCCESS) return a.status;
   TRY(check_data(&g->x, job->x, g->pass == BACKWARD_DATA ? "dx" : "x"));
   TRY(check_data(&g->w, job->w, g->pass == BACKWARD_FILTER ? "dw" : "w"));
   TRY(check_data(&g->y, job->y, g->pass == FORWARD ? "y" : "dy"));
   TRY(check_space(&a, space, bytes));
   if (a.workspace) {
      job->space = space;
      job->space_bytes = bytes;
   }
   job->jitter = a.determinism == CUDNN_NON_DETERMINISTIC;
   struct range ranges[6] = {{job->y, array_bytes(&g->y), g->pass == FORWARD},
                             {job->x, array_bytes(&g->x), g->pass == BACKWARD_DATA},
                             {job->w, array_bytes(&g->w), g->pass == BACKWARD_FILTER}};
   int n = 3;
   if (job->fused) ranges[n++] = (struct range){job->bias, array_bytes(&job->bias_array), false};
   if (job->space) ranges[n++] = (struct range){job->space, job->space_bytes, true};
   TRY(check_all_apart(name, ranges, n));
   if (job->fused && job->z != job->y) ranges[n++] = (struct range){job->z, array_bytes(&g->y), false};
   return queue_work(h, name, ranges, n, run_convolution, job, sizeof *job);
}

static st scalars(struct convolution_job *job, in alpha, in beta)
{
   TRY(read_scalar(alpha, job->g.x.type, "alpha", &job->alpha));
   return read_scalar(beta, job->g.x.type, "beta", &job->beta);
}

st cudnnConvolutionForward(hd h, in alpha, td xd, in x, fd wd, in w, cd conv, cudnnConvolutionFwdAlgo_t algo, out space,
                           size_t bytes, in beta, td yd, out y)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = x, .w = w, .y = y};
   TRY(make_geometry(&job.g, FORWARD, h, xd, wd, conv, yd));
   TRY(scalars(&job, alpha, beta));
   return submit_convolution(h, call.name, &job, (int)algo, space, bytes);
}

st cudnnConvolutionBackwardData(hd h, in alpha, fd wd, in w, td dyd, in dy, cd conv, cudnnConvolutionBwdDataAlgo_t algo,
                                out space, size_t bytes, in beta, td dxd, out dx)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = dx, .w = w, .y = dy};
   TRY(make_geometry(&job.g, BACKWARD_DATA, h, dxd, wd, conv, dyd));
   TRY(scalars(&job, alpha, beta));
   return submit_convolution(h, call.name, &job, (int)algo, space, bytes);
}

st cudnnConvolutionBackwardFilter(hd h, in alpha, td xd, in x, td dyd, in dy, cd conv,
                                  cudnnConvolutionBwdFilterAlgo_t algo, out space, size_t bytes, in beta, fd dwd,
                                  out dw)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = x, .w = dw, .y = dy};
   TRY(make_geometry(&job.g, BACKWARD_FILTER, h, xd, dwd, conv, dyd));
   TRY(scalars(&job, alpha, beta));
   return submit_convolution(h, call.name, &job, (int)algo, space, bytes);
}

static st check_fusion(const struct convolution_job *job, const struct array *z, int algo)
{
   const struct array *b = &job->bias_array;
   if (!setting("STRICT_FUSION", 1)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no fusion, by STRICT_FUSION");
   if (job->activation.mode != CUDNN_ACTIVATION_RELU && job->activation.mode != CUDNN_ACTIVATION_IDENTITY)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "activation mode %d", (int)job->activation.mode);
   if (job->activation.mode == CUDNN_ACTIVATION_IDENTITY && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the identity goes only with algorithm 1, found %d", algo);
   if (b->dim[0] != 1 || b->dim[1] != job->g.y.dim[1] || b->dim[2] != 1 || b->dim[3] != 1 || b->type != job->g.y.type)
      return refuse(CUDNN_STATUS_BAD_PARAM, "bias is %d %d %d %d, expected 1 %d 1 1 of the output's data type",
                    b->dim[0], b->dim[1], b->dim[2], b->dim[3], job->g.y.dim[1]);
   if (!same_shape(z, &job->g.y)) return refuse(CUDNN_STATUS_BAD_PARAM, "zDesc and yDesc differ");
   return CUDNN_STATUS_SUCCESS;
}

st cudnnConvolutionBiasActivationForward(hd h, in alpha1, td xd, in x, fd wd, in w, cd conv,
                                         cudnnConvolutionFwdAlgo_t algo, out space, size_t bytes, in alpha2, td zd,
                                         in z, td bias_d, in bias, const cudnnActivationDescriptor_t activation, td yd,
                                         out y)
{
   CUDNN_CALL;
   struct convolution_job job = {.x = x, .w = w, .y = y, .fused = true, .z = z, .bias = bias};
   TRY(make_geometry(&job.g, FORWARD, h, xd, wd, conv, yd));
   TRY(check_tensor(zd, "zDesc"));
   TRY(check_tensor(bias_d, "biasDesc"));
   TRY(check_activation(activation));
   job.activation = activation->activation;
   job.bias_array = bias_d->array;
   TRY(check_fusion(&job, &zd->array, (int)algo));
   TRY(read_scalar(alpha1, job.g.x.type, "alpha1", &job.alpha));
   TRY(read_scalar(alpha2, job.g.x.type, "alpha2", &job.alpha2));
   TRY(check_data(&job.bias_array, bias, "bias"));
   TRY(check_data(&zd->array, z, "z"));
   if (z != y) TRY(check_apart("z", y, array_bytes(&job.g.y), z, array_bytes(&job.g.y)));
   return submit_convolution(h, call.name, &job, (int)algo, space, bytes);
}
