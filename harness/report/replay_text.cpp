#include "replay_text.h"

#include <fmt/format.h>

#include <utility>

#include "../core/size_text.h"
#include "table.h"

namespace leaklab {
namespace {

constexpr std::size_t most_at_an_end = 10;
constexpr std::int64_t most_that_differ = 20;  // between the ends

std::string moment(const Replay& replay, std::size_t level) {
  if (level == 0) return "start";
  if (replay.has_rest && level + 1 == replay.got.size()) return "dump";
  return grouped(static_cast<std::int64_t>(level) - 1);
}

// "9.5 MiB", and where it is not the file's to the byte, "9.5 MiB (+512 B)".
std::string replayed(std::int64_t want, std::int64_t got) {
  if (got == want) return size_text(got);
  return fmt::format("{} ({}{} B)", size_text(got), got > want ? "+" : "", grouped(got - want));
}

}  // namespace

bool is_equal(const Replay& replay, std::size_t level) {
  return replay.filed.levels[level] == replay.got[level].live;
}

std::string replay_text(const Replay& replay, const Style& style) {
  Table table({{"after step"},
               {"requested", Align::right},
               {"replayed", Align::right},
               {"live", Align::right},
               {"replayed", Align::right},
               {"reserved", Align::right},
               {"replayed", Align::right}});
  std::int64_t differing = 0;
  std::int64_t between = 0;    // that differ, and are at neither end
  std::int64_t equal_out = 0;  // left out
  bool gap = false;
  for (std::size_t level = 0; level < replay.got.size(); ++level) {
    const bool differs = !is_equal(replay, level);
    const bool at_an_end = level < most_at_an_end || level + most_at_an_end >= replay.got.size();
    differing += differs ? 1 : 0;
    between += differs && !at_an_end ? 1 : 0;
    if (!at_an_end && (!differs || between > most_that_differ)) {
      equal_out += differs ? 0 : 1;
      gap = true;
      continue;
    }
    if (std::exchange(gap, false)) table.add({{"...", Tint::dim}});
    const auto& want = replay.filed.levels[level];
    const auto& got = replay.got[level];
    const auto tint = differs ? Tint::bad : Tint::none;
    table.add({{moment(replay, level), tint},
               {size_text(want.requested)},
               {replayed(want.requested, got.live.requested), tint},
               {grouped(want.allocations)},
               {grouped(got.live.allocations), tint},
               {size_text(replay.filed.reserved[level])},
               {replay.segments ? size_text(got.reserved) : ""}});
  }
  auto text = table.text(style) + '\n';
  if (equal_out > 0) text += counted(equal_out, "level") + " left out, equal in both\n";
  if (between > most_that_differ) {
    text += counted(between - most_that_differ, "more level") + " left out, not equal\n";
  }
  return text +
         wrapped(fmt::format("{}{} on {}: requested bytes and live allocations {}{}{}",
                             counted(replay.events, "event"),
                             replay.device ? fmt::format(" of device {}", *replay.device) : "",
                             replay.on,
                             differing == 0 ? "are equal at every step"
                                            : fmt::format("differ at {} of {}", grouped(differing),
                                                          counted(std::ssize(replay.got), "level")),
                             replay.filed.has_steps ? "" : "; no steps were found",
                             replay.segments
                                 ? ""
                                 : "; reserved bytes are the file's alone, as memory of the CPU is "
                                   "taken from no segments"),
                 0, style) +
         '\n';
}

}  // namespace leaklab
