/* SPDX-License-Identifier: MIT */
/* One network that POSIX threads use at the same time: what was not refused was done, and inference is right. */
#define _POSIX_C_SOURCE 200809L
#include "cnn.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 100, N = 2 * 1 * 16 * 16 };

static const int images[] = {2, 1, 16, 16};
static cnn_network *net;
static float x[N], expected[N];
static int done[THREADS], refused[THREADS], wrong[THREADS];

static void *infer(void *argument)
{
   const int me = *(const int *)argument;
   float y[N];
   const cnn_array xs = {x, images, 4, CNN_FLOAT32, 0}, ys = {y, images, 4, CNN_FLOAT32, 0};
   for (int i = 0; i < ROUNDS; i++) wrong[me] += cnn_forward(net, &xs, &ys, NULL) || memcmp(y, expected, sizeof y) != 0;
   return NULL;
}

static void *learn(void *argument)
{
   const int me = *(const int *)argument;
   const cnn_array xs = {x, images, 4, CNN_FLOAT32, 0};
   char message[CNN_MESSAGE];
   for (int i = 0; i < ROUNDS; i++) {
      if (cnn_step(net, &xs, &xs, "sgd lr=0.001", NULL, message) == 0)
         done[me]++;
      else if (strstr(message, "another call is at work"))
         refused[me]++;
   }
   return NULL;
}

static void in_threads(void *(*work)(void *))
{
   pthread_t threads[THREADS];
   int numbers[THREADS];
   for (int i = 0; i < THREADS; i++) {
      numbers[i] = i;
      if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) return;
   }
   for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void)
{
   const cnn_array xs = {x, images, 4, CNN_FLOAT32, 0}, ys = {expected, images, 4, CNN_FLOAT32, 0};
   int all = 0, taken = 0, bad = 0;
   for (int i = 0; i < N; i++) x[i] = (float)(7 * i % 23 - 11) / 8;
   net = cnn_new();
   cnn_add(net, "a", "conv2d", "in_channels=1 out_channels=8 kernel_size=3,3 padding=1,1", NULL, NULL);
   cnn_add(net, "b", "tanh", NULL, NULL, NULL);
   cnn_add(net, "c", "conv2d", "in_channels=8 out_channels=1 kernel_size=3,3 padding=1,1", NULL, NULL);
   if (cnn_build(net, NULL, NULL, NULL, 1, NULL) || cnn_forward(net, &xs, &ys, NULL)) return 1;
   in_threads(infer);
   in_threads(learn);
   for (int i = 0; i < THREADS; i++) {
      bad += wrong[i];
      taken += done[i];
      all += done[i] + refused[i];
   }
   printf("wrong %d, told %d of %d, some taken %d\n", bad, all, THREADS * ROUNDS, taken > 0);
   cnn_free(net);
   return 0;
}
