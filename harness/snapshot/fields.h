// The keys of a snapshot's entries.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace leaklab {

enum class Field : std::uint8_t {
  unknown,
  // of an event
  action,
  addr,  // of a history entry as well
  device_free,
  size,  // of a block as well
  stream,
  time_us,
  compile_context,
  user_metadata,
  frames,
  pool_id,
  // of a block
  address,
  requested_size,
  state,
  history,
  real_size,
  // of a segment
  device,
  total_size,
  allocated_size,
  active_size,
  segment_type,
  segment_pool_id,
  is_expandable,
  blocks,
  // of an annotation
  stage,
  name,  // of a frame as well
  // of a frame
  filename,
  line,
  // of the top level
  segments,
  device_traces,
  allocator_settings,
  external_annotations,
};

constexpr std::array<std::string_view, 32> field_names = {"",
                                                          "action",
                                                          "addr",
                                                          "device_free",
                                                          "size",
                                                          "stream",
                                                          "time_us",
                                                          "compile_context",
                                                          "user_metadata",
                                                          "frames",
                                                          "pool_id",
                                                          "address",
                                                          "requested_size",
                                                          "state",
                                                          "history",
                                                          "real_size",
                                                          "device",
                                                          "total_size",
                                                          "allocated_size",
                                                          "active_size",
                                                          "segment_type",
                                                          "segment_pool_id",
                                                          "is_expandable",
                                                          "blocks",
                                                          "stage",
                                                          "name",
                                                          "filename",
                                                          "line",
                                                          "segments",
                                                          "device_traces",
                                                          "allocator_settings",
                                                          "external_annotations"};

constexpr std::string_view text_of(Field field) {
  return field_names[static_cast<std::size_t>(field)];
}

}  // namespace leaklab
