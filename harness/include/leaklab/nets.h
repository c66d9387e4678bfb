// The usual nets, built once here so that a scenario file stays short and compiles fast.
#pragma once

#include <cstdint>
#include <vector>

#include "leaklab/torch.h"

namespace leaklab {

// A multilayer perceptron on `device`: Linear layers between consecutive `widths`, ReLU between
// them, none after the last. Input [batch, widths.front()], output [batch, widths.back()].
torch::nn::Sequential mlp(const std::vector<std::int64_t>& widths, torch::Device device);

// Fills parameters with small values that depend on their position only, so that every rank and
// every twin starts from the same weights.
void fill_deterministically(torch::nn::Module& module);

// Euclidean norm over all gradients of the parameters, undefined ones left out.
double gradient_norm(const torch::nn::Module& module);

// Mean of the squares of `output`: a scalar loss that needs no target.
torch::Tensor mean_square(const torch::Tensor& output);

}  // namespace leaklab
