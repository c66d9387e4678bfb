// How a run moved, in the few words of a table cell.
#pragma once

#include <optional>
#include <string>

#include "leaklab/recording.h"
#include "leaklab/signature.h"

namespace leaklab {

struct Movement {
  std::string channel;
  std::string unit;
  Signature signature;
};

// The channel that tells most about a run: `requested` where it moved, else the first that moved
// of those that the scenario predicts or leaves to the baseline, else of the exact ones. Nothing
// where none moved.
std::optional<Movement> movement_of(const Recording& recording, const Growth& growth);

// What was gained in a step, "+512 B", or in a period, "+4,096 B per 3"; "plateau +512 B" and the
// like for what did not grow evenly.
std::string to_text(const Movement& movement);

// What `growth` predicts for that channel, in the terms in which it moved: for a step or a period,
// the sum over the judged steps for what did not grow evenly, or "stored" where the baseline alone
// judges.
std::string predicted_text(const Growth& growth, const Recording& recording,
                           const std::optional<Movement>& movement);

}  // namespace leaklab
