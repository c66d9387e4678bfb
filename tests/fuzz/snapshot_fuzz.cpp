// Any bytes are read or refused; what was read is written and read again, and says the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "leaklab/error.h"
#include "leaklab/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leaklab;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Snapshot snapshot = read_snapshot(bytes, "input");
    const Snapshot again = read_snapshot(snapshot_bytes(snapshot), "written");
    if (!difference(snapshot, again).empty()) std::abort();
    snapshot_bytes(snapshot, SnapshotFormat::json);
  } catch (const UsageError&) {
  }
  return 0;
}
