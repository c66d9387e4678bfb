#include "leaklab/amp.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "leaklab/scenario.h"

namespace leaklab {
namespace {

struct GradientGroup {
  torch::Device device;
  torch::ScalarType dtype;
  std::vector<torch::Tensor> gradients;
};

// The gradients of an optimizer by device and dtype, in the order of their parameters.
std::vector<GradientGroup> gradients_of(const torch::optim::Optimizer& optimizer) {
  std::vector<GradientGroup> groups;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      TORCH_CHECK_VALUE(gradient.scalar_type() != torch::kHalf,
                        "Attempting to unscale FP16 gradients.");
      const auto values = gradient.is_sparse() ? gradient._values() : gradient;
      const auto found = std::ranges::find_if(groups, [&](const GradientGroup& other) {
        return other.device == values.device() && other.dtype == values.scalar_type();
      });
      if (found != groups.end()) {
        found->gradients.push_back(values);
      } else {
        groups.push_back({values.device(), values.scalar_type(), {values}});
      }
    }
  }
  return groups;
}

torch::Tensor& on_device(std::vector<torch::Tensor>& tensors, torch::Device device) {
  return *std::ranges::find_if(
      tensors, [&](const torch::Tensor& tensor) { return tensor.device() == device; });
}

}  // namespace

Autocast::Autocast(torch::Device device, std::optional<torch::ScalarType> dtype, bool enabled,
                   std::optional<bool> cache_enabled)
    : device_(device.type()) {
  TORCH_CHECK(at::autocast::is_autocast_available(device_),
              "User specified an unsupported autocast device_type '", device_, "'");
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  dtype_before_ = at::autocast::get_autocast_dtype(device_);
  cache_enabled_before_ = at::autocast::is_autocast_cache_enabled();
  const auto lower = dtype.value_or(dtype_before_);
  TORCH_CHECK(!enabled || lower == torch::kBFloat16 || lower == torch::kHalf,
              "autocast takes bfloat16 or float16, not ", lower);
  at::autocast::set_autocast_enabled(device_, enabled);
  at::autocast::set_autocast_dtype(device_, lower);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(cache_enabled.value_or(cache_enabled_before_));
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_enabled_before_);
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  if (!options_.enabled) return;
  TORCH_CHECK(options_.growth_factor > 1.0, "The growth factor must be > 1.0.");
  TORCH_CHECK(options_.backoff_factor < 1.0, "The backoff factor must be < 1.0.");
}

void GradScaler::check_scale(const char* caller) const {
  TORCH_CHECK(
      scale_.defined(), "Attempted ", caller,
      " but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
      "outputs) earlier in the iteration.");
}

GradScaler::Optimizer& GradScaler::state_of(const torch::optim::Optimizer& optimizer) {
  const auto found = std::ranges::find(optimizers_, &optimizer, &Optimizer::which);
  if (found != optimizers_.end()) return *found;
  return optimizers_.emplace_back(Optimizer{&optimizer, Stage::ready, {}});
}

torch::Tensor GradScaler::scale(const torch::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  if (!scale_.defined()) {
    const auto options = torch::TensorOptions(outputs.device());
    scale_ = torch::full({}, options_.init_scale, options.dtype(torch::kFloat));
    growth_tracker_ = torch::zeros({}, options.dtype(torch::kInt));
  }
  return outputs * scale_.to(outputs.device(), /*non_blocking=*/true);
}

std::vector<torch::Tensor> GradScaler::scale(const std::vector<torch::Tensor>& outputs) {
  std::vector<torch::Tensor> scaled;
  for (const auto& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  check_scale("unscale_");
  auto& state = state_of(optimizer);
  TORCH_CHECK(state.stage != Stage::unscaled,
              "unscale_() has already been called on this optimizer since the last update().");
  TORCH_CHECK(state.stage != Stage::stepped, "unscale_() is being called after step().");
  const torch::NoGradGuard no_grad;
  // In double, because a division in float may be imprecise.
  const auto inverse = scale_.to(torch::kDouble).reciprocal().to(torch::kFloat);
  std::vector<torch::Tensor> inverses;
  std::vector<torch::Tensor> found_inf;
  for (auto& group : gradients_of(optimizer)) {
    const auto seen = std::ranges::any_of(
        inverses, [&](const torch::Tensor& other) { return other.device() == group.device; });
    if (!seen) {
      inverses.push_back(inverse.to(group.device, /*non_blocking=*/true));
      found_inf.push_back(torch::zeros({}, inverses.back().options()));
    }
    at::_amp_foreach_non_finite_check_and_unscale_(
        group.gradients, on_device(found_inf, group.device), on_device(inverses, group.device));
  }
  state.found_inf = std::move(found_inf);
  state.stage = Stage::unscaled;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  check_scale("step");
  auto& state = state_of(optimizer);
  TORCH_CHECK(state.stage != Stage::stepped,
              "step() has already been called since the last update().");
  if (state.stage == Stage::ready) unscale_(optimizer);
  TORCH_CHECK(!state.found_inf.empty(), "No inf checks were recorded for this optimizer.");
  const auto finite = std::ranges::all_of(
      state.found_inf, [](const torch::Tensor& found) { return found.item<float>() == 0; });
  if (finite) optimizer.step();
  state.stage = Stage::stepped;
  return finite;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  check_scale("update");
  const torch::NoGradGuard no_grad;
  torch::Tensor found_inf;
  for (const auto& state : optimizers_) {
    for (const auto& found : state.found_inf) {
      const auto here = found.to(scale_.device(), /*non_blocking=*/true);
      found_inf = found_inf.defined() ? found_inf.add_(here) : here;
    }
  }
  TORCH_CHECK(found_inf.defined(), "No inf checks were recorded prior to update.");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale("update");
  scale_.fill_(new_scale);
  optimizers_.clear();
}

void GradScaler::update(const torch::Tensor& new_scale) {
  if (!options_.enabled) return;
  check_scale("update");
  TORCH_CHECK(new_scale.device().type() == scale_.device().type() && new_scale.numel() == 1 &&
                  !new_scale.requires_grad(),
              "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
              "torch.FloatTensor with requires_grad=False.");
  scale_.copy_(new_scale.reshape({}));
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  return scale_.defined() ? static_cast<double>(scale_.item<float>()) : options_.init_scale;
}

std::int64_t GradScaler::get_growth_tracker() const {
  return scale_.defined() ? growth_tracker_.item<int>() : 0;
}

void compare_precisions(Run& run, const std::vector<torch::Tensor>& parameters,
                        const std::function<torch::Tensor()>& loss) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.01));
  GradScaler scaler;
  std::int64_t weights = 0;
  for (const auto& parameter : parameters) {
    weights += static_cast<std::int64_t>(parameter.nbytes());
  }
  std::int64_t single = 0;
  std::int64_t mixed = 0;
  run.step([&](Step step) {
    const auto held = run.peak();
    if (step.index % 2 == 0) {
      loss().backward();
      optimizer.step();
    } else {
      torch::Tensor scaled;
      {
        const Autocast scope(run.device(), torch::kBFloat16);
        scaled = scaler.scale(loss());
      }
      scaled.backward();
      scaler.step(optimizer);
      scaler.update();
    }
    optimizer.zero_grad();
    (step.index % 2 == 0 ? single : mixed) = run.peak() - held + weights;
    run.gauge("peak_ratio", mixed * 1000 / single, "1/1000");
    run.gauge("peak_saved", single - mixed, "B");
  });
}

}  // namespace leaklab
