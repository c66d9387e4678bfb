// What a scenario file includes: LibTorch, the macro that registers it, and the run that it sees.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "leaklab/registry.h"
#include "leaklab/torch.h"

namespace leaklab {

struct Step {
  std::int64_t index = 0;  // counted from 0, the warm-up included
  bool warming_up = false;
};

// What the body of a scenario sees. The body's local variables are the scenario's state: leaving
// the body releases it, and what is still held then is measured too.
class Run {
 public:
  virtual ~Run() = default;
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // True in the leaky twin: the only thing in which the twins differ.
  bool fault() const { return do_fault(); }
  // The value of a declared parameter.
  std::int64_t param(std::string_view name) const { return do_setting()[name]; }
  const Setting& setting() const { return do_setting(); }
  torch::Device device() const { return do_device(); }
  // Steps of this run, the warm-up included.
  std::int64_t steps() const { return do_steps(); }

  // Runs `body` once for each step of the run and samples every channel after each, when the
  // device was synchronised. Called exactly once.
  void step(const std::function<void(Step)>& body) { do_step(body); }

  // Measures something of the scenario's own as channel "gauge.NAME", once in a step. Integers are
  // exact. Floating-point values are kept in thousandths and are tolerant.
  void gauge(std::string_view name, std::integral auto value, std::string_view unit = "count") {
    do_gauge(name, static_cast<std::int64_t>(value), unit, true);
  }
  void gauge(std::string_view name, std::floating_point auto value,
             std::string_view unit = "1/1000") {
    do_gauge(name, thousandths(value), unit, false);
  }

  // The most bytes live at once since the step began; inside a step only.
  std::int64_t peak() const { return do_peak(); }

  // Work that must be over before a boundary is sampled: collectives to wait for.
  void before_sampling(std::function<void()> drain) { do_before_sampling(std::move(drain)); }

  // Leaves the scenario: it can't run here, for this reason.
  [[noreturn]] void skip(const std::string& reason);

 protected:
  virtual bool do_fault() const = 0;
  virtual const Setting& do_setting() const = 0;
  virtual torch::Device do_device() const = 0;
  virtual std::int64_t do_steps() const = 0;
  virtual void do_step(const std::function<void(Step)>& body) = 0;
  virtual void do_gauge(std::string_view name, std::int64_t value, std::string_view unit,
                        bool exact) = 0;
  virtual std::int64_t do_peak() const = 0;
  virtual void do_before_sampling(std::function<void()> drain) = 0;

 private:
  static std::int64_t thousandths(double value);
};

// Thrown by Run::skip.
struct Skipped : std::exception {
  explicit Skipped(std::string why) : reason(std::move(why)) {}
  const char* what() const noexcept override { return reason.c_str(); }
  std::string reason;
};

}  // namespace leaklab

// Registers a scenario: LEAKLAB_SCENARIO(id, .taxonomy = "L20", .summary = "...", ...) { body }.
// The file is named as the id. The body sees `leaklab::Run& run`.
#define LEAKLAB_SCENARIO(name, ...)                                                     \
  static void leaklab_body_##name(::leaklab::Run& run);                                 \
  static const ::leaklab::Registration leaklab_registration_##name{::leaklab::Scenario{ \
      .id = #name, .file = __FILE__, .body = &leaklab_body_##name, __VA_ARGS__}};       \
  static void leaklab_body_##name([[maybe_unused]] ::leaklab::Run& run)
