// The two forms of a snapshot's file.
#pragma once

#include "leaklab/snapshot.h"
#include "source.h"

namespace leaklab {

// Throw Refusal at source.offset(); of an operation of a pickle, `at` is where it begins.
Snapshot read_pickle(Source& source, std::uint64_t& at);
Snapshot read_json(Source& source);

}  // namespace leaklab
