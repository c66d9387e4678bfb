#include "leaklab/nets.h"

#include <cmath>

namespace leaklab {

torch::nn::Sequential mlp(const std::vector<std::int64_t>& widths, torch::Device device) {
  torch::nn::Sequential net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    net->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
    if (i + 2 < widths.size()) net->push_back(torch::nn::ReLU());
  }
  fill_deterministically(*net);
  net->to(device);
  return net;
}

void fill_deterministically(torch::nn::Module& module) {
  const torch::NoGradGuard guard;
  for (auto& parameter : module.parameters()) {
    const auto values = torch::arange(parameter.numel(), parameter.options());
    parameter.copy_(((values.remainder(7) - 3) * 0.01).reshape(parameter.sizes()));
  }
}

double gradient_norm(const torch::nn::Module& module) {
  double sum = 0;
  for (const auto& parameter : module.parameters()) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const auto norm = gradient.detach().norm().item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

torch::Tensor mean_square(const torch::Tensor& output) { return output.pow(2).mean(); }

}  // namespace leaklab
