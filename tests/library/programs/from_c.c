/* SPDX-License-Identifier: MIT */
/* The same steps as beside_python.f90 through cnn.h: saved before and after, and what the network computes. */
#include "cnn.h"

#include <stdio.h>
#include <stdlib.h>

static char message[CNN_MESSAGE];

static void check(int status)
{
   if (status == 0) return;
   fprintf(stderr, "%s\n", message);
   exit(1);
}

static void write_numbers(const char *path, const cnn_array *array, size_t count)
{
   FILE *file = fopen(path, "wb");
   if (!file || fwrite(array->data, sizeof(float), count, file) != count || fclose(file) != 0) exit(1);
}

/* Integers of two kinds beside the same numbers as float32 */
static void check_integers(void)
{
   int32_t words[] = {3, 0, 4, 1, 2, 3};
   int64_t classes[18];
   float real_words[6], real_classes[18], y[18], same[18], dy[18];
   const int shape[] = {2, 3}, rows[] = {2, 3, 3};
   double loss[3];
   for (int i = 0; i < 6; i++) real_words[i] = (float)words[i];
   for (int i = 0; i < 18; i++) {
      dy[i] = (float)i;
      classes[i] = i % 9 / 3 == i % 2;
      real_classes[i] = (float)classes[i];
   }
   const cnn_array w = {words, shape, 2, CNN_INT32, 0}, c = {classes, rows, 3, CNN_INT64, 0};
   const cnn_array rw = {real_words, shape, 2, CNN_FLOAT32, 0}, rc = {real_classes, rows, 3, CNN_FLOAT32, 0};
   const cnn_array ys = {y, rows, 3, CNN_FLOAT32, 0}, others = {same, rows, 3, CNN_FLOAT32, 0};
   const cnn_array dys = {dy, rows, 3, CNN_FLOAT32, 0};
   cnn_network *net = cnn_new();
   check(cnn_add(net, "table", "embedding", "num_embeddings=5 embedding_dim=3", NULL, message));
   check(cnn_add(net, "by_class", "permute", "dims=0,2,1", NULL, message));
   check(cnn_build(net, "cross_entropy class_indices=1", NULL, NULL, 3, message));
   check(cnn_forward(net, &w, &ys, message));
   check(cnn_forward(net, &rw, &others, message));
   for (int i = 0; i < 18; i++) if (y[i] != same[i]) printf("integers: y differs at %d\n", i);
   check(cnn_compute_gradients(net, &w, &c, &loss[0], message));
   check(cnn_compute_gradients(net, &rw, &rc, &loss[1], message));
   check(cnn_step(net, &w, &rc, "sgd lr=0.1", &loss[2], message));
   if (loss[0] != loss[1] || loss[0] != loss[2]) printf("integers: the losses differ\n");
   check(cnn_pull_back(net, &w, &dys, NULL, message));
   printf("%d %s\n", cnn_forward(net, &w, &c, message), message);
   const cnn_array there = {words, shape, 2, CNN_INT32, 1};
   printf("%d %s\n", cnn_forward(net, &there, &ys, message), message);
   words[5] = 7;
   printf("%d %s\n", cnn_forward(net, &w, &ys, message), message);
   cnn_free(net);
}

int main(int count, char **arguments)
{
   enum { N = 3 * 8 * 10 };
   static float x[N], target[N], y[N], dx[N], weight[36], wrong[4];
   const int images[] = {3, 1, 8, 10}, filters[] = {4, 1, 3, 3};
   const cnn_array xs = {x, images, 4, CNN_FLOAT32, 0}, targets = {target, images, 4, CNN_FLOAT32, 0};
   const cnn_array ys = {y, images, 4, CNN_FLOAT32, 0}, dxs = {dx, images, 4, CNN_FLOAT32, 0};
   const cnn_array weights = {weight, filters, 4, CNN_FLOAT32, 0}, wrongs = {wrong, filters, 1, CNN_FLOAT32, 0};
   const char *optimizer = "sgd lr=0.125 momentum=0.5";
   double loss;
   for (int i = 1; i <= N; i++) {
      x[i - 1] = (float)(7 * i % 23 - 11) / 8;
      target[i - 1] = (float)(5 * i % 19 - 9) / 8;
   }
   cnn_network *net = cnn_new(), *again = cnn_new();
   const char *filter = "in_channels=1 out_channels=4 kernel_size=3,3 padding=1,1";
   check(cnn_add(net, "conv1", "conv2d", filter, NULL, message));
   check(cnn_add(net, "act", "silu", NULL, NULL, message));
   check(cnn_add(net, "conv2", "conv2d", "in_channels=4 out_channels=1 kernel_size=3,3 padding=1,1", NULL, message));
   check(cnn_add(net, "sum", "add", NULL, "conv2,input", message));
   check(cnn_build(net, NULL, count > 1 ? arguments[1] : NULL, NULL, 11, message));
   check(cnn_save(net, "before.h5", optimizer, message));
   for (int i = 0; i < 2; i++) {
      check(cnn_step(net, &xs, &targets, optimizer, &loss, message));
      printf("loss %.16e\n", loss);
   }
   /* The last step in parts, with gradients that were elsewhere meanwhile */
   int numbers;
   check(cnn_parameter_count(net, &numbers, message));
   const cnn_array gradients = {malloc(sizeof(float) * (size_t)numbers), &numbers, 1, CNN_FLOAT32, 0};
   if (numbers != 36 + 4 + 36 + 1 || !gradients.data) return 1;
   check(cnn_compute_gradients(net, &xs, &targets, &loss, message));
   check(cnn_get_gradients(net, &gradients, message));
   check(cnn_compute_gradients(net, &xs, &xs, &(double){0}, message));
   check(cnn_set_gradients(net, &gradients, message));
   check(cnn_update(net, optimizer, message));
   free(gradients.data);
   printf("loss %.16e\n", loss);
   check(cnn_get_gradient(net, "conv1.weight", &weights, message));
   write_numbers("gradient.bin", &weights, 36);
   check(cnn_save(net, "after.h5", optimizer, message));
   check(cnn_load(again, "after.h5", NULL, NULL, message));
   check(cnn_pull_back(again, &xs, &targets, &dxs, message));
   check(cnn_forward(again, &xs, &ys, message));
   write_numbers("y.bin", &ys, N);
   write_numbers("dx.bin", &dxs, N);
   check(cnn_get(again, "conv1.weight", &weights, message));
   weight[0] = 0;
   check(cnn_set(again, "conv1.weight", &weights, message));
   check(cnn_set_training(again, 0, message));
   /* What is wrong is said, and nothing else happens */
   printf("%d %s\n", cnn_forward(again, &xs, &wrongs, message), message);
   printf("%d %s\n", cnn_forward(NULL, &xs, &ys, message), message);
   printf("%d %s\n", cnn_step(net, &xs, &targets, "sgd rate=1", &loss, message), message);
   printf("%d %s\n", cnn_load(again, "none.h5", NULL, NULL, message), message);
   printf("%d\n", cnn_load(again, "none.h5", NULL, NULL, NULL));
   /* Null where an array is wanted, where a number is not wanted, and texts that say nothing or two things */
   printf("%d %s\n", cnn_forward(net, NULL, &ys, message), message);
   printf("%d %s\n", cnn_step(net, &xs, NULL, optimizer, &loss, message), message);
   printf("%d %s\n", cnn_get(net, "conv1.weight", NULL, message), message);
   printf("%d\n", cnn_step(net, &xs, &targets, optimizer, NULL, message));
   printf("%d\n", cnn_parameter_count(net, NULL, message));
   printf("%d %s\n", cnn_step(net, &xs, &targets, "sgd lr=abc", &loss, message), message);
   printf("%d %s\n", cnn_step(net, &xs, &targets, "sgd lr=1 lr=2", &loss, message), message);
   printf("%d %s\n", cnn_save(net, "", optimizer, message), message);
   const cnn_array once = {y, &numbers, 1, CNN_FLOAT32, 0};
   printf("%d %s\n", cnn_set_gradients(again, &once, message), message);
   cnn_network *twice = cnn_new();
   check(cnn_add(twice, "twice", "conv2d", "in_channels=1 out_channels=1 kernel_size=3,3 padding=1,1 padding=0,0", NULL,
                 message));
   printf("%d %s\n", cnn_build(twice, NULL, NULL, NULL, 0, message), message);
   cnn_free(twice);
   check_integers();
   cnn_free(net);
   cnn_free(again);
   cnn_free(NULL);
   return 0;
}
