#include "check_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "movement.h"
#include "table.h"

namespace leaklab {
namespace {

constexpr std::size_t log_lines = 12;
constexpr std::size_t site_lines = 5;
constexpr std::size_t listed = 12;

Tint tint_of(Outcome outcome) {
  if (outcome == Outcome::pass) return Tint::good;
  return is_failure(outcome) ? Tint::bad : Tint::warning;
}

bool has_run(const CheckResult& result) {
  return result.recording.steps > 0 && result.recording.skipped.empty();
}

// What the scenario of a recording predicts for it; no growth for one that isn't registered.
Growth growth_of(const Recording& recording) {
  const auto found = std::ranges::find(scenarios(), recording.scenario, &Scenario::id);
  if (found == scenarios().end()) return {};
  const auto setting =
      setting_of(*found, recording.environment, {recording.params.begin(), recording.params.end()});
  return found->growth(setting, recording.twin);
}

std::string_view baseline_word(std::span<const CheckResult> twins) {
  const auto any = [&](auto predicate) { return std::ranges::any_of(twins, predicate); };
  if (any([](const auto& twin) {
        return std::ranges::any_of(twin.differences, [](const auto& difference) {
          return difference.source == "baseline";
        });
      })) {
    return "differs";
  }
  if (any([](const auto& twin) { return twin.outcome == Outcome::missing; })) return "none";
  if (any([](const auto& twin) { return twin.outcome == Outcome::ambiguous; })) return "other";
  const bool passed =
      std::ranges::all_of(twins, [](const auto& twin) { return twin.outcome == Outcome::pass; });
  return passed ? "equal" : "-";
}

// The outcome of both twins: of two that differ, the one to look at first.
Outcome worst(std::span<const CheckResult> twins) {
  const auto rank = [](const CheckResult& result) {
    return is_failure(result.outcome) ? 2 : result.outcome == Outcome::pass ? 0 : 1;
  };
  return std::ranges::max_element(twins, {}, rank)->outcome;
}

// The fixed twin in one word: nothing is to grow, and a lookalike may move within bounds.
std::string word_of(const std::optional<Movement>& moved) {
  if (!moved) return "0";
  const auto shape = moved->signature.shape;
  const bool grew = shape == Shape::linear || shape == Shape::stairs;
  return grew ? to_text(*moved) : std::string(to_string(shape));
}

// One line, and another that names the channel where it is not `requested`.
void add_rows(Table& table, std::span<const CheckResult> twins) {
  std::string channel;
  std::string leaky = "-";
  std::string predicted = "-";
  std::string fixed = "-";
  for (const auto& result : twins) {
    if (!has_run(result)) continue;
    const auto growth = growth_of(result.recording);
    const auto moved = movement_of(result.recording, growth);
    if (result.twin == Twin::leaky) {
      leaky = moved ? to_text(*moved) : "0";
      if (moved && moved->channel != "requested") channel = moved->channel;
      predicted = predicted_text(growth, result.recording, moved);
    } else {
      fixed = word_of(moved);
    }
  }
  const auto outcome = worst(twins);
  table.add({{twins.front().id},
             {leaky},
             {predicted},
             {fixed},
             {std::string(baseline_word(twins))},
             {std::string(to_string(outcome)), tint_of(outcome)}});
  if (!channel.empty()) table.add({{"  on " + channel, Tint::dim}});
}

std::string table_text(const std::vector<CheckResult>& results, const Style& style) {
  Table table({{"scenario", Align::left, Fit::cut},
               {"leaky/step", Align::right},
               {"predicted", Align::right},
               {"fixed", Align::right},
               {"baseline"},
               {"outcome"}});
  for (std::size_t begin = 0; begin < results.size();) {
    auto end = begin + 1;
    while (end < results.size() && results[end].id == results[begin].id) ++end;
    add_rows(table, std::span(results).subspan(begin, end - begin));
    begin = end;
  }
  return table.text(style);
}

std::string last_lines(std::string_view log) {
  while (log.ends_with('\n')) log.remove_suffix(1);
  auto begin = log.size();
  for (std::size_t line = 0; line < log_lines && begin != std::string_view::npos; ++line) {
    begin = begin == 0 ? std::string_view::npos : log.rfind('\n', begin - 1);
  }
  const auto tail = begin == std::string_view::npos ? log : log.substr(begin + 1);
  std::string text = begin == std::string_view::npos ? "" : "    ...\n";
  for (std::size_t at = 0; at <= tail.size();) {
    const auto end = std::min(tail.find('\n', at), tail.size());
    text += fmt::format("    {}\n", tail.substr(at, end - at));
    at = end + 1;
  }
  return text;
}

std::string diagnosis(const CheckResult& result, const Style& style) {
  auto text = fmt::format("\n{}  {}, {} twin\n",
                          tinted(to_string(result.outcome), tint_of(result.outcome), style),
                          tinted(result.id, Tint::bold, style), to_string(result.twin));
  // The differences below say the same at length.
  const bool is_first_difference =
      !result.differences.empty() && result.reason == to_string(result.differences.front());
  if (!is_first_difference) text += wrapped(result.reason, 2, style) + '\n';
  for (const auto& difference : result.differences) {
    text += fmt::format("  {} ({})\n", difference.channel, difference.source);
    text += fmt::format("    expected    {}\n    got         {}\n    allowed     {}\n",
                        difference.expected, difference.got, difference.allowed);
    if (difference.first_step >= 0) {
      text += fmt::format("    from step   {}\n", difference.first_step);
    }
  }
  if (!result.sites.empty()) text += "  not freed since the warm-up, by operator\n";
  for (std::size_t i = 0; i < std::min(result.sites.size(), site_lines); ++i) {
    const auto& site = result.sites[i];
    text +=
        fmt::format("    {} B in {}  {}\n", grouped(site.bytes), grouped(site.count), site.where);
  }
  if (result.sites.size() > site_lines) {
    text += fmt::format("    and {} more\n", result.sites.size() - site_lines);
  }
  if (!result.log.empty()) text += "  the end of its output\n" + last_lines(result.log);
  return text + fmt::format("  repeat: {}\n", result.repeat);
}

std::string with_id_left_open(std::string text, const std::string& id) {
  for (auto at = text.find(id); at != std::string::npos; at = text.find(id, at + 2)) {
    text.replace(at, id.size(), "ID");
  }
  return text;
}

// Scenarios that did not fail and did not pass either, together where their reasons are the same.
std::string remarks(const std::vector<CheckResult>& results, const Style& style) {
  struct Group {
    std::vector<std::string> ids;
    const CheckResult* first = nullptr;
  };
  std::map<std::pair<Outcome, std::string>, Group> groups;
  for (const auto& result : results) {
    if (result.outcome == Outcome::pass || is_failure(result.outcome)) continue;
    auto& group = groups[{result.outcome, with_id_left_open(result.reason, result.id)}];
    if (group.first == nullptr) group.first = &result;
    if (group.ids.empty() || group.ids.back() != result.id) group.ids.push_back(result.id);
  }
  std::string text;
  for (const auto& [key, group] : groups) {
    const auto& [outcome, reason] = key;
    const bool one = group.ids.size() == 1;
    text += fmt::format("\n{}  {}\n", tinted(to_string(outcome), tint_of(outcome), style),
                        one ? group.ids.front() : fmt::format("{} scenarios", group.ids.size()));
    text += wrapped(one ? group.first->reason : reason, 2, style) + '\n';
    // Many are marked in the table above all the same.
    if (!one && group.ids.size() <= listed) {
      text += wrapped(fmt::format("{}", fmt::join(group.ids, ", ")), 4, style) + '\n';
    }
    if (outcome == Outcome::skipped) continue;  // it would be skipped again
    text += fmt::format(
        "  repeat: {}\n",
        one ? group.first->repeat : with_id_left_open(group.first->repeat, group.first->id));
  }
  return text;
}

std::string summary(const CheckReport& report, const Style& style) {
  const auto& environment = report.environment;
  auto text = fmt::format("\n{} on {}, LibTorch {}: ", counted(std::ssize(report.results), "run"),
                          environment.backend == "cpu" ? "the CPU" : environment.device,
                          environment.libtorch);
  const char* separator = "";
  for (const auto& [outcome, count] : report.counts()) {
    text += separator +
            tinted(fmt::format("{} {}", count, to_string(outcome)), tint_of(outcome), style);
    separator = ", ";
  }
  if (report.controls > 0) {
    text += fmt::format("; {} of controls held", counted(report.controls, "run"));
  }
  return text + '\n';
}

}  // namespace

std::string check_text(const CheckReport& report, const Style& style) {
  auto text = table_text(report.results, style) + remarks(report.results, style);
  for (const auto& result : report.results) {
    if (is_failure(result.outcome)) text += diagnosis(result, style);
  }
  return text + summary(report, style);
}

}  // namespace leaklab
