/* SPDX-License-Identifier: MIT */
/* Convolutional networks for C, and for what speaks with C: link with -lcnn (pkg-config --libs cnn).
 *
 * Every function but cnn_new and cnn_free gives 0, or 1 where something is wrong, or 2 where a training diverges: then
 * the parameters are those before that step. `message` is room for CNN_MESSAGE characters, in which one sentence says
 * what was found and what was expected; it may be NULL. So may texts that have a default, and loss, count and dx where they are
 * not wanted; a NULL for another array is a message.
 *
 * Shapes have the slowest dimension first, as torch's: images (n, c, h, w), features (n, k), weights (k, c, r, s).
 * Several threads may work at once, each with networks of its own; on one network with cnn_forward alone, where it leaves the
 * network as it is (cnn_set_training(net, 0, m)). Other calls give 1 while one is at work. docs/fortran.md says more.
 */
#ifndef CNN_H
#define CNN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Integers (words, classes) may be what x and target are made of */
enum { CNN_MESSAGE = 512, CNN_FLOAT32 = 1, CNN_FLOAT64 = 2, CNN_INT32 = 5, CNN_INT64 = 6 };

typedef struct cnn_network cnn_network;

/* Numbers one after the other, of the caller's; on_device: in a GPU's memory, where the network is */
typedef struct {
   void *data;
   const int *shape;
   int rank;
   int dtype;
   int on_device;
} cnn_array;

/* A network without layers; NULL where there is no memory */
cnn_network *cnn_new(void);
void cnn_free(cnn_network *network);

/* The next layer: cnn_add(net, "conv1", "conv2d", "in_channels=1 out_channels=8 kernel_size=3,3 padding=1,1", NULL, m).
 * inputs: names with commas between them, "input" for the network's; NULL: the layer before. What is wrong with a layer
 * is said by cnn_build */
int cnn_add(cnn_network *network, const char *name, const char *kind, const char *settings, const char *inputs,
            char *message);
/* The network, with parameters as torch draws them. loss: mse (NULL), l1, cross_entropy, ... with
 * settings, "huber delta=0.5"; device: cpu (NULL), cuda, ...; precision: float32 (NULL), float64 */
int cnn_build(cnn_network *network, const char *loss, const char *device, const char *precision, int64_t seed,
              char *message);
/* From a file that PyTorch, Python or cnn_save has written; precision: the file's where it is NULL */
int cnn_load(cnn_network *network, const char *path, const char *device, const char *precision, char *message);
int cnn_save(cnn_network *network, const char *path, const char *optimizer, char *message);
/* 1: compute as in training; 0: as after it */
int cnn_set_training(cnn_network *network, int training, char *message);

/* y of x */
int cnn_forward(cnn_network *network, const cnn_array *x, const cnn_array *y, char *message);
/* Forward, loss, backward, update. optimizer: "sgd lr=0.1 momentum=0.9", "adam lr=0.001", "adamw", ... */
int cnn_step(cnn_network *network, const cnn_array *x, const cnn_array *target, const char *optimizer, double *loss,
             char *message);
/* A step in parts: forward, loss, backward; the gradients of all parameters as one vector of cnn_parameter_count
 * numbers, to be read, added up over processes or batches, clipped, and set; the update */
int cnn_compute_gradients(cnn_network *network, const cnn_array *x, const cnn_array *target, double *loss,
                          char *message);
int cnn_parameter_count(cnn_network *network, int *count, char *message);
int cnn_get_gradients(cnn_network *network, const cnn_array *values, char *message);
int cnn_set_gradients(cnn_network *network, const cnn_array *values, char *message);
int cnn_update(cnn_network *network, const char *optimizer, char *message);
/* The gradient of sum(dy*y) with respect to x (NULL: it is not wanted), and to all parameters */
int cnn_pull_back(cnn_network *network, const cnn_array *x, const cnn_array *dy, const cnn_array *dx, char *message);

/* conv1.weight, conv1.bias, norm.running_mean; gradients also of the output of conv1, and of input */
int cnn_get(cnn_network *network, const char *name, const cnn_array *values, char *message);
int cnn_set(cnn_network *network, const char *name, const cnn_array *values, char *message);
int cnn_get_gradient(cnn_network *network, const char *name, const cnn_array *values, char *message);

#ifdef __cplusplus
}
#endif

#endif
