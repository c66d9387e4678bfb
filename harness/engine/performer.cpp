#include "leaklab/performer.h"

namespace leaklab {

using Kind = Pattern::Op::Kind;

Performer::Performer(Pattern pattern, torch::Device device)
    : pattern_(std::move(pattern)),
      device_(device),
      reach_(static_cast<std::size_t>(pattern_.reach())) {}

void Performer::step(std::int64_t index, bool fault) {
  const auto& ops = pattern_.at(index);
  auto& own = steps_.emplace_front();
  for (const auto& op : ops) {
    if (op.kind == Kind::free) {
      // What lies before the first step of the run can't be freed.
      const auto ago = static_cast<std::size_t>(op.steps_ago);
      const auto which = static_cast<std::size_t>(op.index);
      if (ago < steps_.size() && which < steps_[ago].size()) steps_[ago][which].reset();
    } else {
      own.push_back(torch::empty({pattern_.bytes(op, index, fault)},
                                 torch::dtype(torch::kByte).device(device_)));
    }
  }
  std::size_t which = 0;
  for (const auto& op : ops) {
    if (op.kind == Kind::free) continue;
    auto& tensor = own[which++];
    if (op.kind != Kind::leak) continue;
    if (fault) held_.push_back(tensor);
    tensor.reset();
  }
  if (steps_.size() <= reach_) return;
  for (auto& tensor : steps_.back()) {
    if (tensor.defined()) held_.push_back(std::move(tensor));
  }
  steps_.pop_back();
}

}  // namespace leaklab
