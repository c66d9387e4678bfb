// Mixed precision: the autocast scope and the gradient scaler that LibTorch's C++ API lacks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "leaklab/torch.h"

namespace leaklab {

class Run;

// A scope in which operators of one device type run in a lower precision, as torch.autocast
// (torch/amp/autocast_mode.py): saves the state of this thread, sets its own, and restores it when
// it is left. Leaving the outermost scope of the thread clears the cache of casted weights, which
// the whole process shares. Scopes end in the reverse order of their beginning.
class Autocast {
 public:
  // `dtype` and `cache_enabled` default to what is set on this thread. Throws c10::Error for a
  // device without autocast and for an enabled scope of a dtype other than bfloat16 and float16,
  // where Python warns and leaves autocast off.
  explicit Autocast(torch::Device device, std::optional<torch::ScalarType> dtype = std::nullopt,
                    bool enabled = true, std::optional<bool> cache_enabled = std::nullopt);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool enabled_before_;
  torch::ScalarType dtype_before_;
  bool cache_enabled_before_;
};

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;   // above 1
  double backoff_factor = 0.5;  // below 1
  std::int64_t growth_interval = 2000;
  bool enabled = true;
};

// Scales losses so that low-precision gradients don't underflow, skips the steps whose gradients
// overflowed, and adapts the scale. Follows torch.amp.GradScaler (torch/amp/grad_scaler.py):
//
//   scaler.scale(loss).backward();
//   scaler.step(optimizer);
//   scaler.update();
//
// Where Python raises, these throw c10::Error (c10::ValueError for float16 gradients) with Python's
// words. Optimizers that unscale in a fused step of their own don't exist in C++, and neither
// closures nor saving the state are supported.
//
// Between update() and scale() it holds two scalars on the device of the first loss, and until
// update() one more for each device and optimizer. Not for use from several threads.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  // `outputs` times the scale, on their device; unchanged where the scaler is off. The first call
  // puts the scale on the device of its argument.
  torch::Tensor scale(const torch::Tensor& outputs);
  std::vector<torch::Tensor> scale(const std::vector<torch::Tensor>& outputs);

  // Divides the gradients of `optimizer` by the scale, in place, and records whether one is
  // infinite or not a number. At most once between two updates, before step(). Waits for no device.
  void unscale_(torch::optim::Optimizer& optimizer);

  // Unscales unless unscale_() was called, then runs the optimizer's step if all gradients are
  // finite. True if the optimizer stepped, where Python returns what its step returned. Waits for
  // the device.
  bool step(torch::optim::Optimizer& optimizer);

  // Multiplies the scale by backoff_factor if a step was skipped since the last update, or by
  // growth_factor once growth_interval updates in a row saw none; a product that is not finite is
  // not taken. Begins the next iteration for all optimizers.
  void update();
  // Sets the scale instead. A tensor must hold one element, lie on the scale's type of device and
  // not require gradients.
  void update(double new_scale);
  void update(const torch::Tensor& new_scale);

  // The scale; 1 where the scaler is off. Waits for the device.
  double get_scale() const;
  // Updates in a row without a skipped step since the scale last moved. Waits for the device.
  std::int64_t get_growth_tracker() const;
  bool is_enabled() const { return options_.enabled; }

 private:
  enum class Stage { ready, unscaled, stepped };
  // What is known of one optimizer since the last update.
  struct Optimizer {
    const torch::optim::Optimizer* which;
    Stage stage = Stage::ready;
    std::vector<torch::Tensor>
        found_inf;  // a float scalar for each device: above 0 if it overflowed
  };

  void check_scale(const char* caller) const;
  Optimizer& state_of(const torch::optim::Optimizer& optimizer);

  GradScalerOptions options_;
  torch::Tensor scale_;           // float scalar
  torch::Tensor growth_tracker_;  // int scalar
  std::vector<Optimizer> optimizers_;
};

// Trains `parameters` by `loss`, which is computed anew each step, with plain SGD: even steps in
// FP32, odd ones in mixed precision (autocast to bfloat16 and a gradient scaler). `loss` returns
// float32. Two gauges compare the latest step of either kind:
//   peak_ratio  the peak in mixed precision against that in FP32, in thousandths
//   peak_saved  bytes by which the peak in mixed precision is lower
// A peak is that of the parameters and of all that the step adds to them: what else lies on the
// device all the time (a cuBLAS workspace) would only bring the ratio nearer to one.
void compare_precisions(Run& run, const std::vector<torch::Tensor>& parameters,
                        const std::function<torch::Tensor()>& loss);

}  // namespace leaklab
