// The two forms of a snapshot's file.
#pragma once

#include "leaklab/snapshot.h"
#include "source.h"

namespace leaklab {

// Throw Refusal at source.offset(); of an operation of a pickle, that is where it begins.
Snapshot read_pickle(Source& source);
Snapshot read_json(Source& source);

}  // namespace leaklab
