// The MLP of train_numpy.py in CUDA C++, with kernels of its own, and Adam. It reads fixture.h5, writes result.h5.
// nvcc -std=c++17 -o train_cuda train_cuda.cu $(pkg-config --cflags --libs hdf5) -lhdf5_hl
// Without a GPU the same kernels run in threads of the CPU (on_host.h):
// g++ -std=c++20 -pthread -x c++ -o train_cuda train_cuda.cu $(pkg-config --cflags --libs hdf5) -lhdf5_hl

#include <hdf5.h>
#include <hdf5_hl.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#ifndef __CUDACC__
#include "on_host.h"
#endif
#define CHECK(call) checked(call, #call)

void checked(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "train_cuda: %s: %s\n", call, cudaGetErrorString(status));
  std::exit(1);
}

template <class Status>  // HDF5's: negative where it failed
Status checked(Status status, const char* call) {
  if (status >= 0) return status;
  std::fprintf(stderr, "train_cuda: %s failed\n", call);
  std::exit(1);
}

#ifdef __CUDACC__
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  kernel<<<grid, block>>>(arguments...);
  CHECK(cudaGetLastError());
}
#endif

// --- kernels: neighbours in a block read neighbours in memory, and sums have one order ---------------------------

constexpr unsigned TILE = 16, THREADS = 256;

// c(m, n) = a b, and bias(n) beside it where there is one. a is (m, k), or (k, m) if A_ACROSS; b is (k, n), or (n, k).
template <bool A_ACROSS, bool B_ACROSS>
__global__ void multiply(float* c, const float* a, const float* b, const float* bias, unsigned m, unsigned n,
                         unsigned k) {
  __shared__ float a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];  // one more column: no conflicts of banks
  const unsigned x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  float sum = 0;
  for (unsigned start = 0; start < k; start += TILE) {
    if (A_ACROSS) a_tile[x][y] = start + y < k && row + x < m ? a[(start + y) * m + row + x] : 0;
    else a_tile[y][x] = row + y < m && start + x < k ? a[(row + y) * k + start + x] : 0;
    if (B_ACROSS) b_tile[x][y] = column + y < n && start + x < k ? b[(column + y) * k + start + x] : 0;
    else b_tile[y][x] = start + y < k && column + x < n ? b[(start + y) * n + column + x] : 0;
    __syncthreads();
    for (unsigned i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
    __syncthreads();
  }
  if (row + y < m && column + x < n) c[(row + y) * n + column + x] = bias ? sum + bias[column + x] : sum;
}

__global__ void sum_rows(float* sums, const float* a, unsigned rows, unsigned columns) {
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (unsigned row = 0; row < rows; ++row) sum += a[row * columns + column];
  sums[column] = sum;
}

__global__ void relu(float* y, const float* x, unsigned size) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) y[i] = x[i] > 0 ? x[i] : 0;
}

__global__ void relu_backward(float* d_x, const float* d_y, const float* x, unsigned size) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) d_x[i] = x[i] > 0 ? d_y[i] : 0;
}

// The mean of (y - target)², by one block, and its gradient
__global__ void squared_error(float* loss, float* d_y, const float* y, const float* target, unsigned size) {
  __shared__ float partial[THREADS];
  float sum = 0;
  for (unsigned i = threadIdx.x; i < size; i += THREADS) {
    const float difference = y[i] - target[i];
    sum += difference * difference;
    d_y[i] = 2 * difference / size;
  }
  partial[threadIdx.x] = sum;
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = partial[0] / size;
}

struct Adam {  // as torch has it: step_size is lr / (1 - beta1^t), and root the square root of 1 - beta2^t
  float beta1, beta2, step_size, root, eps;
};

__global__ void update(float* weight, float* mean, float* square, const float* gradient, Adam adam, unsigned size) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float g = gradient[i];
  mean[i] = adam.beta1 * mean[i] + (1 - adam.beta1) * g;
  square[i] = adam.beta2 * square[i] + (1 - adam.beta2) * g * g;
  weight[i] -= adam.step_size * mean[i] / (sqrtf(square[i]) / adam.root + adam.eps);
}

// --- tensors on the device, and files -----------------------------------------------------------------------------
struct Tensor {  // float32, in C's order
  std::vector<hsize_t> shape;
  float* data = nullptr;
  explicit Tensor(std::vector<hsize_t> dimensions) : shape(std::move(dimensions)) { CHECK(cudaMalloc(&data, bytes())); }
  Tensor(Tensor&& other) noexcept : shape(std::move(other.shape)), data(std::exchange(other.data, nullptr)) {}
  ~Tensor() { CHECK(cudaFree(data)); }

  unsigned size() const { return std::accumulate(shape.begin(), shape.end(), 1u, std::multiplies<unsigned>()); }
  std::size_t bytes() const { return size() * sizeof(float); }
  unsigned rows() const { return static_cast<unsigned>(shape[0]); }
  unsigned columns() const { return static_cast<unsigned>(shape[1]); }
};

Tensor read(hid_t file, const std::string& name) {
  int rank = 0;
  CHECK(H5LTget_dataset_ndims(file, name.c_str(), &rank));
  std::vector<hsize_t> shape(rank);
  CHECK(H5LTget_dataset_info(file, name.c_str(), shape.data(), nullptr, nullptr));
  Tensor tensor(shape);
  std::vector<float> values(tensor.size());
  CHECK(H5LTread_dataset_float(file, name.c_str(), values.data()));
  CHECK(cudaMemcpy(tensor.data, values.data(), tensor.bytes(), cudaMemcpyHostToDevice));
  return tensor;
}

void write(hid_t file, const std::string& name, const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  CHECK(cudaMemcpy(values.data(), tensor.data, tensor.bytes(), cudaMemcpyDeviceToHost));  // errors of kernels, too
  const hid_t links = CHECK(H5Pcreate(H5P_LINK_CREATE));
  CHECK(H5Pset_create_intermediate_group(links, 1));  // groups that are not there yet
  const hid_t space = CHECK(H5Screate_simple(static_cast<int>(tensor.shape.size()), tensor.shape.data(), nullptr));
  const hid_t set = CHECK(H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space, links, H5P_DEFAULT, H5P_DEFAULT));
  CHECK(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  CHECK(H5Dclose(set));
  CHECK(H5Sclose(space));
  CHECK(H5Pclose(links));
}

double optimizer_setting(hid_t fixture, const char* name) {
  double value = 0;
  CHECK(H5LTget_attribute_double(fixture, "/optimizer", name, &value));
  return value;
}

// --- the network --------------------------------------------------------------------------------------------------
dim3 blocks_of(unsigned size) { return dim3((size + THREADS - 1) / THREADS); }

template <bool A_ACROSS, bool B_ACROSS>
Tensor product(const Tensor& a, const Tensor& b, const float* bias = nullptr) {
  const unsigned m = A_ACROSS ? a.columns() : a.rows(), k = A_ACROSS ? a.rows() : a.columns();
  const unsigned n = B_ACROSS ? b.rows() : b.columns();
  Tensor c({m, n});
  launch(multiply<A_ACROSS, B_ACROSS>, dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE), c.data,
         a.data, b.data, bias, m, n, k);
  return c;
}

struct Parameter {  // one tensor that is trained, with Adam's moments
  std::string name;
  Tensor weight, mean, square;
  Parameter(hid_t fixture, const std::string& name)
      : name(name), weight(read(fixture, "steps/0/weights/" + name)), mean(weight.shape), square(weight.shape) {
    CHECK(cudaMemset(mean.data, 0, mean.bytes()));
    CHECK(cudaMemset(square.data, 0, square.bytes()));
  }
  void step(const Tensor& gradient, Adam adam) {
    launch(update, blocks_of(weight.size()), dim3(THREADS), weight.data, mean.data, square.data, gradient.data, adam,
           weight.size());
  }
};

struct Linear {  // y = x wᵀ + b; torch's weight is (outputs, inputs)
  Parameter weight, bias;
  Linear(hid_t fixture, const std::string& name) : weight(fixture, name + "/weight"), bias(fixture, name + "/bias") {}
  Tensor forward(const Tensor& x) const { return product<false, true>(x, weight.weight, bias.weight.data); }
  Tensor backward(const Tensor& d_y) const { return product<false, false>(d_y, weight.weight); }
  // The gradients of both parameters go into the file, and then into Adam
  void step(hid_t result, const std::string& here, const Tensor& x, const Tensor& d_y, Adam adam) {
    const Tensor d_weight = product<true, false>(d_y, x);
    const Tensor d_bias(bias.weight.shape);
    launch(sum_rows, blocks_of(d_bias.size()), dim3(THREADS), d_bias.data, d_y.data, d_y.rows(), d_y.columns());
    for (auto [parameter, gradient] : {std::pair(&weight, &d_weight), std::pair(&bias, &d_bias)}) {
      write(result, here + "weights/" + parameter->name, parameter->weight);
      write(result, here + "grads/" + parameter->name, *gradient);
      parameter->step(*gradient, adam);
    }
  }
};

void train(hid_t fixture, hid_t result) {
  const double lr = optimizer_setting(fixture, "lr"), eps = optimizer_setting(fixture, "eps");
  const double beta1 = optimizer_setting(fixture, "beta1"), beta2 = optimizer_setting(fixture, "beta2");
  Linear first(fixture, "0"), second(fixture, "2");
  H5G_info_t batches;
  CHECK(H5Gget_info_by_name(fixture, "/batches", &batches, H5P_DEFAULT));
  const int steps = static_cast<int>(batches.nlinks);
  for (int step = 0; step < steps; ++step) {
    const std::string number = std::to_string(step), here = "steps/" + number + "/";
    const Tensor x = read(fixture, "batches/" + number + "/input");
    const Tensor target = read(fixture, "batches/" + number + "/target");
    const Tensor hidden = first.forward(x), active(hidden.shape);
    launch(relu, blocks_of(hidden.size()), dim3(THREADS), active.data, hidden.data, hidden.size());
    const Tensor y = second.forward(active), d_y(y.shape), loss(std::vector<hsize_t>{});
    launch(squared_error, dim3(1), dim3(THREADS), loss.data, d_y.data, y.data, target.data, y.size());
    const Tensor d_active = second.backward(d_y), d_hidden(hidden.shape);
    launch(relu_backward, blocks_of(hidden.size()), dim3(THREADS), d_hidden.data, d_active.data, hidden.data,
           hidden.size());
    for (auto [name, tensor] : {std::pair("forward/0", &hidden), std::pair("forward/1", &active),
                                std::pair("forward/2", &y), std::pair("loss", &loss),
                                std::pair("grads/2/output", &d_y), std::pair("grads/1/output", &d_active),
                                std::pair("grads/0/output", &d_hidden)})
      write(result, here + name, *tensor);
    const double t = step + 1;
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    const Adam adam{float(beta1), float(beta2), float(lr / correction1), float(std::sqrt(correction2)), float(eps)};
    second.step(result, here, active, d_y, adam);
    first.step(result, here, x, d_hidden, adam);
  }
  for (const Linear* layer : {&first, &second})
    for (const Parameter* one : {&layer->weight, &layer->bias})
      write(result, "steps/" + std::to_string(steps) + "/weights/" + one->name, one->weight);
}

int main() {
  const hid_t fixture = CHECK(H5Fopen("fixture.h5", H5F_ACC_RDONLY, H5P_DEFAULT));
  const hid_t result = CHECK(H5Fcreate("result.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const int version = 2;
  CHECK(H5LTset_attribute_string(result, "/", "format", "cnn-exchange"));
  CHECK(H5LTset_attribute_int(result, "/", "format_version", &version, 1));
  CHECK(H5LTset_attribute_string(result, "/", "role", "candidate"));
  train(fixture, result);
  CHECK(H5Fclose(result));
  CHECK(H5Fclose(fixture));
}
