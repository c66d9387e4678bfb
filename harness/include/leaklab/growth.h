// The analytic oracle: the growth that a scenario predicts from its own shapes.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace leaklab {

// What the leaky twin of a scenario gains per period on each exact channel after the warm-up. A
// channel that is not named gains nothing. The fixed twin gains nothing on any.
//
//   Growth().tensor(4 * batch * width).nodes(7)         one tensor and seven nodes a step
//   Growth().tensor(4 * width).every(3).until(12)       one tensor every third step, up to step 12
class Growth {
 public:
  // `count` more tensors of `bytes` each stay alive. Moves `requested` and `peak` by the bytes,
  // `live_allocations` by the count, and `allocated` by the bytes rounded up to the caching
  // allocator's block of 512 (exact for tensors of up to 1 MiB and for multiples of 2 MiB from
  // 10 MiB on: c10/core/AllocatorConfig.h).
  Growth& tensor(std::int64_t bytes, std::int64_t count = 1);
  // `count` more autograd nodes stay alive.
  Growth& nodes(std::int64_t count);
  // `amount` more on any channel, a gauge ("gauge.NAME") or a tolerant one included.
  Growth& on(std::string_view channel, std::int64_t amount);
  // The channel moves, by an amount that no formula of ours gives; the baseline alone judges it.
  Growth& unpredicted(std::string_view channel);
  // The amounts are gained once every `steps` steps (default 1).
  Growth& every(std::int64_t steps);
  // Growth happens in steps first <= step < last only, counted from 0.
  Growth& from(std::int64_t first);
  Growth& until(std::int64_t last);
  // What leaked is still there after the scenario's body was left and the caches were emptied.
  Growth& outlives_scope();

  // Units gained on `channel` in one period inside [first, last); zero for channels not named.
  std::int64_t per_period(std::string_view channel) const;
  bool predicts(std::string_view channel) const { return !unpredicted_.contains(channel); }
  const std::map<std::string, std::int64_t, std::less<>>& amounts() const { return amounts_; }
  std::int64_t period() const { return period_; }
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }
  bool outlives() const { return outlives_; }
  // The same periods with no growth at all: what the fixed twin does.
  Growth none() const;

 private:
  std::map<std::string, std::int64_t, std::less<>> amounts_;
  std::set<std::string, std::less<>> unpredicted_;
  std::int64_t period_ = 1;
  std::int64_t first_ = 0;
  std::int64_t last_ = std::numeric_limits<std::int64_t>::max();
  bool outlives_ = false;
};

}  // namespace leaklab
