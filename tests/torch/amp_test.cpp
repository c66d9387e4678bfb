#include "leaklab/amp.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "leaklab/event_log.h"
#include "leaklab/probe.h"

namespace leaklab {
namespace {

using torch::optim::SGD;
using torch::optim::SGDOptions;

// Live tensors and their bytes on the CPU, relative to when it was made.
class LiveTensors {
 public:
  LiveTensors() {
    for (const auto& named : probes()) {
      Environment environment;
      environment.backend = "cpu";
      if (named.name == "cpu_allocator") named.make()->start(environment);
    }
    bytes_ = event_log().live_bytes();
    count_ = event_log().live_count();
  }
  std::int64_t bytes() const { return event_log().live_bytes() - bytes_; }
  std::int64_t count() const { return event_log().live_count() - count_; }

 private:
  std::int64_t bytes_ = 0;
  std::int64_t count_ = 0;
};

torch::Tensor weight_of(const std::vector<std::int64_t>& sizes) {
  return torch::ones(sizes).requires_grad_();
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(Autocast, runs_matrix_products_in_the_lower_precision_and_restores_what_was_set_before) {
  const auto matrix = torch::ones({4, 4});
  const auto before = at::autocast::get_autocast_dtype(torch::kCPU);
  {
    const Autocast scope(torch::kCPU, torch::kHalf, true, false);
    EXPECT_EQ(matrix.mm(matrix).scalar_type(), torch::kHalf);
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    {
      const Autocast off(torch::kCPU, torch::kBFloat16, /*enabled=*/false);
      EXPECT_EQ(matrix.mm(matrix).scalar_type(), torch::kFloat);
      EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), torch::kBFloat16);
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    }
    EXPECT_EQ(matrix.mm(matrix).scalar_type(), torch::kHalf);
  }
  EXPECT_EQ(matrix.mm(matrix).scalar_type(), torch::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), before);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST(Autocast, gives_back_the_casts_when_the_outermost_scope_ends) {
  const auto input = torch::ones({1, 8});
  const auto weight = weight_of({8, 8});
  const LiveTensors live;
  {
    const Autocast outer(torch::kCPU, torch::kBFloat16);
    {
      const Autocast inner(torch::kCPU, torch::kBFloat16);
      torch::linear(input, weight);
      EXPECT_EQ(live.bytes(), 2 * 8 * 8);
    }
    EXPECT_EQ(live.bytes(), 2 * 8 * 8);
  }
  EXPECT_EQ(live.bytes(), 0);
}

TEST(Autocast, keeps_no_casts_with_its_cache_off) {
  const auto input = torch::ones({1, 8});
  const auto weight = weight_of({8, 8});
  const LiveTensors live;
  const Autocast scope(torch::kCPU, torch::kBFloat16, true, /*cache_enabled=*/false);
  torch::linear(input, weight);
  EXPECT_EQ(live.bytes(), 0);
}

TEST(Autocast, refuses_what_it_cannot_do_and_changes_nothing) {
  EXPECT_EQ(message_of([] { const Autocast scope(torch::kCPU, torch::kDouble); }),
            "autocast takes bfloat16 or float16, not Double");
  EXPECT_EQ(message_of([] { const Autocast scope{torch::Device{torch::kMeta}}; }),
            "User specified an unsupported autocast device_type 'meta'");
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  at::autocast::decrement_nesting();
}

class OnDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  }
  torch::Device device() const { return torch::Device(GetParam()); }
};

// The steps of one case of tests/data/make_grad_scaler.py, which holds the formulas.
class Replay {
 public:
  Replay(const nlohmann::json& test_case, torch::Device device)
      : case_(test_case), device_(device), scaler_(options()) {
    for (int i = 0; i < 2; ++i) {
      parameters_.push_back(torch::tensor({1.0F, -2.0F, 0.5F, 4.0F}, device).requires_grad_());
      optimizers_.push_back(
          std::make_unique<SGD>(std::vector{parameters_.back()}, SGDOptions(0.25)));
    }
  }

  nlohmann::json step(std::int64_t step) {
    for (std::int64_t which = 0; which < 2; ++which) {
      const auto& parameter = parameters_[static_cast<std::size_t>(which)];
      parameter.mutable_grad().reset();
      const auto loss = (parameter.pow(2) * coefficients(step, which)).sum();
      scaler_.scale(loss * case_.value("factor", 1.0)).backward();
    }
    nlohmann::json stepped;
    for (const auto& optimizer : optimizers_) {
      if (case_.value("unscale_first", false)) scaler_.unscale_(*optimizer);
      stepped.push_back(scaler_.step(*optimizer));
    }
    update(step);
    nlohmann::json parameters;
    for (const auto& parameter : parameters_) {
      const auto host = parameter.detach().cpu();
      const auto* values = host.data_ptr<float>();
      parameters.push_back(std::vector<float>(values, values + 4));
    }
    return {{"stepped", stepped},
            {"scale", scaler_.get_scale()},
            {"growth_tracker", scaler_.get_growth_tracker()},
            {"parameters", parameters}};
  }

 private:
  GradScalerOptions options() const {
    const auto& given = case_.at("options");
    GradScalerOptions options;
    options.init_scale = given.value("init_scale", options.init_scale);
    options.growth_factor = given.value("growth_factor", options.growth_factor);
    options.backoff_factor = given.value("backoff_factor", options.backoff_factor);
    options.growth_interval = given.value("growth_interval", options.growth_interval);
    options.enabled = given.value("enabled", options.enabled);
    return options;
  }

  torch::Tensor coefficients(std::int64_t step, std::int64_t which) const {
    std::vector<float> values;
    for (std::int64_t i = 0; i < 4; ++i) {
      values.push_back(static_cast<float>((3 * step + 5 * i + which) % 7 - 3) / 4.0F);
    }
    for (const auto& poison : case_.at("poison")) {
      if (poison[0] == step && poison[1] == which) {
        values[0] = std::stof(poison[2].get<std::string>());
      }
    }
    return torch::tensor(values, device_);
  }

  void update(std::int64_t step) {
    for (const auto& given : case_.value("new_scale", nlohmann::json::array())) {
      if (given[0] == step) {
        scaler_.update(given[1].get<double>());
        return;
      }
    }
    scaler_.update();
  }

  const nlohmann::json& case_;
  torch::Device device_;
  GradScaler scaler_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::unique_ptr<SGD>> optimizers_;
};

TEST_P(OnDevice, the_scaler_does_in_every_step_what_pythons_does) {
  std::ifstream file(LEAKLAB_SOURCE_DIR "/tests/data/grad_scaler.json");
  const auto document = nlohmann::json::parse(file);
  ASSERT_FALSE(document.at("cases").empty());
  for (const auto& test_case : document.at("cases")) {
    Replay replay(test_case, device());
    std::int64_t step = 0;
    for (const auto& expected : test_case.at("records")) {
      EXPECT_EQ(replay.step(step), expected) << test_case.at("name") << ", step " << step;
      ++step;
    }
    EXPECT_EQ(step, test_case.at("steps"));
  }
}

TEST_P(OnDevice, a_step_with_one_bad_gradient_among_many_is_skipped) {
  const auto good = torch::ones({3}, device()).requires_grad_();
  const auto bad = torch::ones({5}, device()).requires_grad_();
  SGD optimizer({good, bad}, SGDOptions(1.0));
  GradScaler scaler;
  auto loss = good.sum() + bad[4] * std::numeric_limits<float>::infinity();
  scaler.scale(loss).backward();
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768.0);
  EXPECT_EQ(good.sum().item<float>(), 3.0F);
}

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, testing::Values("cpu", "cuda"),
                         [](const auto& test) { return std::string(test.param); });

struct Training {
  torch::Tensor parameter = weight_of({2});
  SGD optimizer{std::vector{parameter}, SGDOptions(0.5)};
  GradScaler scaler;

  void backward() {
    optimizer.zero_grad();
    scaler.scale(parameter.sum()).backward();
  }
};

TEST(GradScaler, leaves_unscaled_gradients_to_be_seen_between_unscale_and_step) {
  Training training;
  training.backward();
  EXPECT_EQ(training.parameter.grad()[0].item<float>(), 65536.0F);
  training.scaler.unscale_(training.optimizer);
  EXPECT_EQ(training.parameter.grad()[0].item<float>(), 1.0F);
  training.parameter.mutable_grad().mul_(0.5);
  EXPECT_TRUE(training.scaler.step(training.optimizer));
  EXPECT_EQ(training.parameter[0].item<float>(), 0.75F);
}

TEST(GradScaler, unscales_once_between_two_updates) {
  Training training;
  training.backward();
  training.scaler.unscale_(training.optimizer);
  EXPECT_EQ(message_of([&] { training.scaler.unscale_(training.optimizer); }),
            "unscale_() has already been called on this optimizer since the last update().");
  training.scaler.step(training.optimizer);
  EXPECT_EQ(message_of([&] { training.scaler.unscale_(training.optimizer); }),
            "unscale_() is being called after step().");
  training.scaler.update();
  training.backward();
  training.scaler.unscale_(training.optimizer);
  EXPECT_EQ(training.parameter.grad()[0].item<float>(), 1.0F);
}

TEST(GradScaler, steps_once_between_two_updates) {
  Training training;
  training.backward();
  training.scaler.step(training.optimizer);
  EXPECT_EQ(message_of([&] { training.scaler.step(training.optimizer); }),
            "step() has already been called since the last update().");
  training.scaler.update();
  training.backward();
  EXPECT_TRUE(training.scaler.step(training.optimizer));
}

TEST(GradScaler, wants_a_scaled_loss_before_all_else) {
  const std::string hint =
      " but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
      "outputs) earlier in the iteration.";
  Training training;
  EXPECT_EQ(training.scaler.get_scale(), 65536.0);
  EXPECT_EQ(message_of([&] { training.scaler.unscale_(training.optimizer); }),
            "Attempted unscale_" + hint);
  EXPECT_EQ(message_of([&] { training.scaler.step(training.optimizer); }), "Attempted step" + hint);
  EXPECT_EQ(message_of([&] { training.scaler.update(); }), "Attempted update" + hint);
  EXPECT_EQ(message_of([&] { training.scaler.update(2.0); }), "Attempted update" + hint);
}

TEST(GradScaler, wants_gradients_to_check) {
  Training training;
  training.scaler.scale(torch::ones({}));
  EXPECT_EQ(message_of([&] { training.scaler.update(); }),
            "No inf checks were recorded prior to update.");
  EXPECT_EQ(message_of([&] { training.scaler.step(training.optimizer); }),
            "No inf checks were recorded for this optimizer.");
}

TEST(GradScaler, refuses_float16_gradients) {
  auto parameter = torch::ones({2}, torch::kHalf).requires_grad_();
  SGD optimizer({parameter}, SGDOptions(0.5));
  GradScaler scaler;
  scaler.scale(parameter.sum()).backward();
  EXPECT_THROW(scaler.unscale_(optimizer), c10::ValueError);
  EXPECT_EQ(message_of([&] { scaler.step(optimizer); }), "Attempting to unscale FP16 gradients.");
}

TEST(GradScaler, refuses_factors_that_would_not_adapt) {
  EXPECT_EQ(message_of([] { GradScaler({.growth_factor = 1.0}); }),
            "The growth factor must be > 1.0.");
  EXPECT_EQ(message_of([] { GradScaler({.backoff_factor = 1.0}); }),
            "The backoff factor must be < 1.0.");
  EXPECT_EQ(message_of([] { GradScaler({.growth_factor = 1.0, .enabled = false}); }),
            "nothing was thrown");
}

TEST(GradScaler, takes_a_scale_from_a_tensor_without_keeping_it) {
  Training training;
  training.backward();
  auto given = torch::tensor({4.0F});
  training.scaler.update(given);
  given.fill_(1.0);
  EXPECT_EQ(training.scaler.get_scale(), 4.0);
  const std::string refusal =
      "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
      "requires_grad=False.";
  EXPECT_EQ(message_of([&] { training.scaler.update(torch::ones({2})); }), refusal);
  EXPECT_EQ(message_of([&] { training.scaler.update(weight_of({1})); }), refusal);
}

TEST(GradScaler, scales_every_output_of_a_list) {
  GradScaler scaler({.init_scale = 8.0});
  const auto scaled = scaler.scale(std::vector{torch::ones({}), torch::full({2}, 3.0)});
  ASSERT_EQ(scaled.size(), 2);
  EXPECT_EQ(scaled[0].item<float>(), 8.0F);
  EXPECT_EQ(scaled[1][1].item<float>(), 24.0F);
}

TEST(GradScaler, unscales_the_values_of_sparse_gradients) {
  const auto table = weight_of({4, 2});
  SGD optimizer({table}, SGDOptions(0.5));
  GradScaler scaler;
  const auto rows = torch::embedding(table, torch::tensor({1, 1, 3}), -1, false, /*sparse=*/true);
  scaler.scale(rows.sum()).backward();
  scaler.unscale_(optimizer);
  ASSERT_TRUE(table.grad().is_sparse());
  EXPECT_EQ(table.grad()._values().max().item<float>(), 1.0F);
  EXPECT_EQ(table.grad().to_dense()[1][0].item<float>(), 2.0F);
}

TEST(GradScaler, holds_a_fixed_few_scalars) {
  Training training;
  training.backward();
  training.scaler.step(training.optimizer);
  training.scaler.update();
  training.optimizer.zero_grad();
  const LiveTensors live;
  for (int step = 0; step < 10; ++step) {
    training.backward();
    training.scaler.step(training.optimizer);
    EXPECT_EQ(live.count(), 2) << "the gradient and what was found in it";
    training.scaler.update();
    training.optimizer.zero_grad();
    EXPECT_EQ(live.count(), 0);
  }
}

TEST(GradScaler, that_is_off_passes_everything_through) {
  Training training;
  training.scaler = GradScaler({.enabled = false});
  const auto loss = training.parameter.sum();
  EXPECT_TRUE(training.scaler.scale(loss).is_same(loss));
  loss.backward();
  training.scaler.unscale_(training.optimizer);
  EXPECT_TRUE(training.scaler.step(training.optimizer));
  EXPECT_TRUE(training.scaler.step(training.optimizer));
  training.scaler.update();
  EXPECT_EQ(training.parameter[0].item<float>(), 0.0F);
  EXPECT_EQ(training.scaler.get_scale(), 1.0);
  EXPECT_FALSE(training.scaler.is_enabled());
}

}  // namespace
}  // namespace leaklab
