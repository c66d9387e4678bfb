#include "device_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "classify.h"
#include "growth.h"
#include "lifetimes.h"
#include "memory_levels.h"
#include "out_of_memory.h"
#include "segments.h"
#include "steps.h"

namespace leaklab {
namespace {

constexpr std::int64_t least_steps = 3;  // to call a trace clean
constexpr std::int64_t leak_steps = 4;   // to call it a leak
constexpr std::int64_t few_steps = 5;    // clean, and a leak that comes now and then would not show
// Of what iterations allocate, the part of what they keep from which on they may be parts of a
// step.
constexpr double keeps_much = 1.0 / 3;

std::string short_file(std::string_view file) {
  const auto slash = file.find_last_of("/\\");
  return std::string(slash == std::string_view::npos ? file : file.substr(slash + 1));
}

// A leak's places that stand on one line of the user's code.
struct LineLeak {
  FrameId frame = no_frame;
  StackId stack = 0;  // of the place that leaks most
  std::int64_t most = -1;
  std::vector<Left> added;  // before its place's last steps that tell, in any order
  std::vector<Left> young;  // after these, what is likely to stay
  std::int64_t onset = -1;
  std::int64_t trusted = 0;
  std::int64_t live_bytes = 0;
  std::int64_t block_bytes = 0;  // of the blocks that these are in
  std::int64_t live_count = 0;
  std::int64_t unborn_bytes = 0;  // of these born before the trace
  std::int64_t unborn_count = 0;
  std::int64_t earlier_count = 0;  // of a place that has most of them, with what a cut step left
  std::vector<Left> as_earlier;    // what the same place leaves in the trace
  std::int64_t period = 0;         // of what it leaves, or of the program; 0: none
  std::int64_t times = 0;
  std::int64_t places = 0;
  std::int64_t sizes = 0;   // how many different ones it leaves
  std::int64_t births = 0;  // of its places, in whole steps
  std::int64_t freed = 0;   // of them
  std::int64_t first_size = 0;
  std::int64_t last_size = 0;
  LeakTraits traits;
};

// Whether the program or the caller said where steps begin.
bool is_marked(const Steps& steps) {
  return steps.source != "call stacks" && steps.source != "sizes" && steps.source != "lifetimes";
}

// Whether each step leaves more of it than the one before.
bool keeps_ever_more(std::span<const Left> left, std::int64_t Left::*what) {
  return left.size() >= 5 &&
         std::ranges::adjacent_find(left, std::greater_equal{}, what) == left.end();
}

class DeviceDiagnosis {
 public:
  DeviceDiagnosis(const Snapshot& snapshot, std::size_t device, const Sites& sites,
                  const DiagnoseOptions& options)
      : snapshot_(snapshot),
        trace_(snapshot.traces[device]),
        sites_(sites),
        lifetimes_(lifetimes(snapshot, device)),
        levels_(levels(trace_, lifetimes_)),
        steps_(find_steps(snapshot, device, sites, lifetimes_, options)),
        segments_(snapshot, device) {
    result.device = static_cast<std::int64_t>(device);
    describe_steps();
    find_peak();
    result.oom = out_of_memory(snapshot, device, sites, lifetimes_, levels_, steps_);
    judge_places();
    report_leaks();
    decide();
    tell_limits();
  }

  Diagnosis result;

 private:
  CodeSite site(FrameId frame) const { return site_of(snapshot_, frame); }
  std::int64_t requested_after(std::int64_t step) const {
    return levels_[steps_.begin[static_cast<std::size_t>(step) + 1]];
  }

  void describe_steps();
  void find_peak();
  void judge_places();
  bool trains(std::int64_t step) const {
    return steps_.trains[steps_.kind[static_cast<std::size_t>(step)]];
  }
  void add_leak(const Group& group, const Judged& judged);
  std::uint32_t pool_of(const Group& group) const;
  bool batches_grow() const;
  void drop_what_grows_with_the_steps();
  void share_traits();
  void add_traits(LineLeak& leak, std::span<const Left> left, bool regular) const;
  void add_lookalike(const Group& group, const Judged& judged);
  bool is_evaluation(std::int64_t step) const;
  void report_leaks();
  std::int64_t steps_before_trace(const LineLeak& leak) const;
  std::int64_t onset_in_program(const LineLeak& leak) const;
  double rate_of_cycles(std::span<const Left> left) const;
  bool is_made_up_for() const;
  bool level_rises() const;
  bool runs_backward() const;
  double kept_of_steps() const;
  FrameId only_call() const;
  bool goes_round_layers() const;
  bool is_one_update() const;
  bool has_kept_before() const;
  bool is_one_hill() const;
  FrameId line_before(EventIndex event);
  FrameId line_of_blocks(const Group& group);
  void decide();
  void tell_limits();
  void limit(std::string text) { result.limits.push_back(std::move(text)); }

  const Snapshot& snapshot_;
  const Trace& trace_;
  const Sites& sites_;
  const Lifetimes lifetimes_;
  const std::vector<std::int64_t> levels_;
  const Steps steps_;
  std::map<FrameId, LineLeak> leaks_;
  std::vector<Lookalike> lookalikes_;
  std::int64_t trusted_ = 0;
  std::int64_t leaked_before_ = 0;  // bytes of what leaks that were there before the trace
  std::int64_t leaking_steps_ = 0;  // over which what a line leaks is spread, at most
  std::int64_t suspects_ = 0;
  std::int64_t suspect_times_ = 0;  // steps that the one told of left something in
  std::int64_t in_one_phase_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t in_call_replaced_ = 0;
  std::int64_t loads_ = 0;   // allocations of whole steps that load a model
  std::int64_t births_ = 0;  // all of whole steps
  std::int64_t freed_ = 0;   // of them
  const Segments segments_;  // at the dump
  std::set<std::int64_t> leaking_sizes_;
  CodeSite suspect_site_;
  FrameId only_call_ = no_frame;
  std::vector<FrameId> lines_;  // by event, of the last event before it that has one
  // By requested bytes and line, how many live blocks there are.
  std::map<std::int64_t, std::map<FrameId, std::int64_t>> blocks_by_size_;
};

void DeviceDiagnosis::describe_steps() {
  auto& steps = result.steps;
  steps.seen = steps_.count();
  steps.count = steps_.count() + steps_.before;
  steps.source = steps_.source;
  steps.confidence = steps_.confidence;
  for (const auto kind : steps_.kind) {
    if (kind >= steps.kinds.size()) steps.kinds.resize(kind + 1U);
    ++steps.kinds[kind];
  }
  for (std::int64_t step = 0; step < steps_.count(); ++step) {
    steps.live_after.push_back(requested_after(step));
  }
  if (steps_.count() == 0) return;
  steps.peaks = step_peaks(trace_, lifetimes_, steps_);
  const auto counts = live_counts(trace_, lifetimes_);
  for (const auto end : std::span(steps_.begin).subspan(1)) {
    steps.live_counts.push_back(counts[end]);
  }
}

void DeviceDiagnosis::find_peak() {
  const auto peak = std::ranges::max_element(levels_) - levels_.begin();
  result.peak_bytes = levels_[static_cast<std::size_t>(peak)];
  result.peak_sites =
      live_sites(snapshot_, trace_, sites_, lifetimes_, static_cast<EventIndex>(peak));
  if (auto mark = high_water_mark(result.device, levels_, steps_)) {
    result.device_lookalikes.push_back(std::move(*mark));
  }
  result.survivors = survivors(snapshot_, trace_, sites_, lifetimes_, steps_);
}

// Whether it has no backward pass while steps of another kind have one.
bool DeviceDiagnosis::is_evaluation(std::int64_t step) const {
  return !trains(step) && std::ranges::find(steps_.trains, true) != steps_.trains.end();
}

// The last line of the user's code that an event before that one names: of what a backward pass
// allocates, the line that called backward.
FrameId DeviceDiagnosis::line_before(EventIndex event) {
  if (lines_.empty()) {
    auto line = no_frame;
    for (const auto each : trace_) {
      lines_.push_back(line);
      const auto& stack = sites_.stack(each.stack);
      if (stack.path != 0 && stack.site != no_frame) line = stack.site;
    }
  }
  return lines_[event];
}

// Of events without frames: the line that has most of the live blocks of what is left, where blocks
// have frames, as with context="state".
FrameId DeviceDiagnosis::line_of_blocks(const Group& group) {
  if (blocks_by_size_.empty()) {
    for (const auto& segment : snapshot_.segments) {
      if (segment.device != result.device) continue;
      for (std::uint32_t each = 0; each < segment.blocks; ++each) {
        const auto& block = snapshot_.blocks[segment.first_block + each];
        if (is_live(block)) ++blocks_by_size_[bytes_of(block)][sites_.stack(block.stack).site];
      }
    }
  }
  const auto lines = blocks_by_size_.find(group.size >= 0 ? group.size : group.last_size);
  if (lines == blocks_by_size_.end()) return no_frame;
  return std::ranges::max_element(lines->second, {}, [](const auto& line) { return line.second; })
      ->first;
}

// Events tell the pool in versions after 2.11 only; the segment of what is live at the dump does in
// all.
std::uint32_t DeviceDiagnosis::pool_of(const Group& group) const {
  const auto address = trace_[group.last_left].address;
  const auto after = segments_.by_address().upper_bound(address);
  if (after == segments_.by_address().begin()) return group.pool;
  const auto& [from, range] = *std::prev(after);
  return address - from < static_cast<std::uint64_t>(range.size) ? range.owner.pool : group.pool;
}

void DeviceDiagnosis::add_leak(const Group& group, const Judged& judged) {
  const auto& stack = sites_.stack(group.stack);
  auto line = stack.site;
  if (line == no_frame) {
    line = sites_.any_frames() ? line_before(group.last_left) : line_of_blocks(group);
  }
  auto& leak = leaks_[line];
  leak.frame = line;
  if (leak.places == 0) leak.trusted = steps_.count();
  std::int64_t bytes = 0;
  std::int64_t most_bytes = 0;
  std::int64_t most_count = 0;
  for (const auto& each : judged.growth) {
    if (each.step >= judged.trusted) {
      // Among what is younger than the place's things may grow, as much as a step left before.
      leak.young.push_back(
          {each.step, std::min(each.bytes, most_bytes), std::min(each.count, most_count)});
      leak.live_bytes += leak.young.back().bytes;
      leak.block_bytes += in_blocks(leak.young.back().bytes, leak.young.back().count);
      leak.live_count += leak.young.back().count;
      continue;
    }
    leak.added.push_back(each);
    bytes += each.bytes;
    leak.block_bytes += in_blocks(each.bytes, each.count);
    leak.live_count += each.count;
    most_bytes = std::max(most_bytes, each.bytes);
    most_count = std::max(most_count, each.count);
  }
  leak.trusted = std::min(leak.trusted, judged.trusted);
  leak.onset = leak.onset < 0 ? judged.onset : std::min(leak.onset, judged.onset);
  leak.times = std::max(leak.times, judged.times);
  if (judged.judgement == Judgement::replaced) leak.live_count += group.held.back().count;
  leaking_sizes_.insert(group.size);
  leak.live_bytes += bytes + group.unborn_bytes;
  leak.block_bytes += in_blocks(group.unborn_bytes, group.unborn_count);
  leak.live_count += group.unborn_count;
  leak.unborn_count += group.unborn_count;
  leak.unborn_bytes += group.unborn_bytes;
  // What a step left behind whose beginning the trace no longer has counts as earlier too.
  const auto cut = lifetimes_.begins_late() ? group.early_count : 0;
  if (group.unborn_count + cut > leak.earlier_count) {
    leak.earlier_count = group.unborn_count + cut;
    leak.as_earlier = group.left;
  }
  ++leak.places;
  leak.sizes += group.sizes;
  leak.births += group.births;
  leak.freed += group.freed;
  if (bytes > leak.most) {
    leak.most = bytes;
    leak.stack = group.stack;
    leak.first_size = group.size >= 0 ? group.size : group.first_size;
    leak.last_size = group.size >= 0 ? group.size : group.last_size;
  }
  auto& traits = leak.traits;
  traits.backward = traits.backward || group.stack == 0 || stack.path == 0;
  if (!sites_.any_frames()) traits.backward = false;
  traits.optimizer = traits.optimizer || stack.optimizer;
  traits.loads_model = traits.loads_model || stack.loads_model;
  traits.recurrent = traits.recurrent || stack.recurrent;
  traits.in_layer = traits.in_layer || stack.in_layer;
  traits.in_loss = traits.in_loss || stack.in_loss;
  traits.in_copy = traits.in_copy || stack.in_copy;
  traits.private_pool = traits.private_pool || pool_of(group) != 0;
  traits.replaced = traits.replaced || judged.judgement == Judgement::replaced;
  traits.multiplied = traits.multiplied || judged.judgement == Judgement::multiplied;
  traits.outrun = traits.outrun || judged.judgement == Judgement::outrun;
}

// What all places of the line together say of it.
void DeviceDiagnosis::add_traits(LineLeak& leak, std::span<const Left> left, bool regular) const {
  auto& traits = leak.traits;
  const auto steps = std::ssize(left);
  traits.scalar = leak.last_size <= 8;
  traits.superlinear = !traits.replaced && keeps_ever_more(left, &Left::count);
  traits.evaluation =
      std::ranges::all_of(left, [&](const Left& each) { return is_evaluation(each.step); });
  traits.rare = leak.freed >= 2 * steps && steps * 3 <= steps_.count();
  // What came again was found and not made again: no other step left something.
  traits.every_size_once = leak.sizes >= 5 && leak.sizes == leak.births && !regular &&
                           steps * 10 <= (steps_.count() - leak.onset) * 9;
}

void DeviceDiagnosis::add_lookalike(const Group& group, const Judged& judged) {
  const auto& stack = sites_.stack(group.stack);
  Lookalike each;
  each.device = result.device;
  each.site = site(stack.site);
  for (const auto& left : group.left) each.bytes += left.bytes;
  if (judged.judgement == Judgement::bounded && group.longest_life >= 2) {
    std::int64_t held = 0;
    for (const auto& left : group.held) held = std::max(held, left.bytes);
    each.taxonomy = "N17";
    each.bytes = std::max(each.bytes, held);
    each.reason =
        fmt::format("held for up to {} steps and then freed: bounded", group.longest_life);
  } else if (judged.judgement == Judgement::stopped) {
    each.taxonomy = "N17";
    const auto last = group.left.back().step;
    each.reason = last + 1 < steps_.count()
                      ? fmt::format("grew until step {} and no more since", last + steps_.before)
                      : fmt::format("grew ever more slowly, up to step {}", last + steps_.before);
  } else if (group.left.size() == 1 && group.unborn_count == 0 &&
             group.left.front().step + 1 < steps_.count()) {
    each.taxonomy = "N02";
    each.reason = stack.optimizer
                      ? fmt::format("state of the optimizer, made once in step {}",
                                    group.left.front().step + steps_.before)
                      : fmt::format("allocated once in step {}, such as gradients or a workspace",
                                    group.left.front().step + steps_.before);
  } else {
    return;
  }
  if (each.bytes > 0) lookalikes_.push_back(std::move(each));
}

void DeviceDiagnosis::judge_places() {
  trusted_ = steps_.count();
  const auto all = groups(trace_, lifetimes_, steps_, sites_.any_frames());
  std::vector<Judged> judgements;
  std::set<StackId> leaking;
  for (const auto& group : all) {
    judgements.push_back(judge(group, steps_, sites_));
    // What has no frames comes from no single place.
    if (judgements.back().judgement == Judgement::leak && group.stack != 0) {
      leaking.insert(group.stack);
    }
  }
  for (std::size_t place = 0; place < all.size(); ++place) {
    const auto& group = all[place];
    auto& judged = judgements[place];
    births_ += group.births;
    freed_ += group.freed;
    if (sites_.stack(group.stack).loads_model) loads_ += group.births;
    // Of a size that came too seldom to tell by itself, but from where other sizes leak.
    const bool again = group.left.size() >= 2 || group.freed > 0;
    if (judged.times >= 1 && again && leaking.contains(group.stack) &&
        (judged.judgement == Judgement::suspect || judged.judgement == Judgement::stopped ||
         judged.judgement == Judgement::none)) {
      judged.judgement = Judgement::leak;
    }
    switch (judged.judgement) {
      case Judgement::leak:
      case Judgement::multiplied:
      case Judgement::outrun:
        add_leak(group, judged);
        break;
      case Judgement::replaced:
        // In one call of a program without backward passes, or where iterations are of any size: a
        // cache that grows with the tokens of one request.
        if (steps_.source == "lifetimes" || (sites_.stack(group.stack).callee != no_frame &&
                                             sites_.python() && !trains(group.held.back().step))) {
          ++in_call_replaced_;
          suspect_site_ = site(sites_.stack(group.stack).site);
        } else {
          add_leak(group, judged);
        }
        break;
      case Judgement::suspect:
        ++suspects_;
        suspect_times_ = std::ssize(group.left);
        suspect_site_ = site(sites_.stack(group.stack).site);
        break;
      case Judgement::one_phase:
        // A training that follows another one is no evaluation that ends.
        if (trains(group.left.front().step)) {
          add_leak(group, judged);
          break;
        }
        ++in_one_phase_;
        suspect_site_ = site(sites_.stack(group.stack).site);
        break;
      case Judgement::ended:
        ++ended_;
        suspect_site_ = site(sites_.stack(group.stack).site);
        break;
      case Judgement::none:
      case Judgement::stopped:
      case Judgement::bounded:
        add_lookalike(group, judged);
        break;
    }
  }
  std::ranges::sort(lookalikes_, [](const Lookalike& left, const Lookalike& right) {
    return std::tuple(right.bytes, left.site.line, left.reason) <
           std::tuple(left.bytes, right.site.line, right.reason);
  });
  // One line may have many of them.
  for (auto& each : lookalikes_) {
    const auto known = std::ranges::find_if(result.lookalikes, [&](const Lookalike& other) {
      return other.site == each.site && other.reason == each.reason;
    });
    if (known != result.lookalikes.end()) {
      known->bytes += each.bytes;
    } else if (result.lookalikes.size() < most_lookalikes) {
      result.lookalikes.push_back(std::move(each));
    }
  }
}

// As many steps as blocks were there before the trace, at the rate of the trace.
std::int64_t DeviceDiagnosis::steps_before_trace(const LineLeak& leak) const {
  if (!lifetimes_.begins_late() || leak.earlier_count == 0) return 0;
  const auto span =
      leak.period > 0 ? leak.period : std::max<std::int64_t>(1, leak.trusted - leak.onset);
  std::int64_t seen = 0;
  for (const auto& each : leak.as_earlier) {
    seen += each.step >= leak.onset && each.step < leak.onset + span ? each.count : 0;
  }
  if (seen == 0) return leak.earlier_count;
  return (leak.earlier_count * span + seen / 2) / seen;
}

// The step of the program, from 0, in which the leak began, as far as the live blocks tell.
std::int64_t DeviceDiagnosis::onset_in_program(const LineLeak& leak) const {
  return std::max<std::int64_t>(0, leak.onset + steps_.before - steps_before_trace(leak));
}

// Whether nearly all that steps allocate and free by themselves is larger in each than in the one
// before: beside a history that torch.cat enlarges, a model's activations stay as they are.
bool DeviceDiagnosis::batches_grow() const {
  std::map<StackId, std::vector<Left>> passing;
  for (const auto& each : lifetimes_.allocations) {
    const auto step = steps_.of(each.born);
    if (step < 0 || step >= steps_.count() || steps_.of(each.freed) != step) continue;
    const auto event = trace_[each.born];
    const auto& stack = sites_.stack(event.stack);
    if (stack.site == no_frame || stack.optimizer) continue;
    passing[event.stack].push_back({step, event.size, 1});
  }
  std::int64_t growing = 0;
  std::int64_t all = 0;
  for (auto& [stack, parts] : passing) {
    const auto steps = summed(std::move(parts));
    // Losses and counters are as small in any batch.
    if (std::ssize(steps) * 10 < steps_.count() * 9 || steps.back().bytes < least_block) continue;
    ++all;
    growing += keeps_ever_more(steps, &Left::bytes) ? 1 : 0;
  }
  return growing >= 2 && growing * 4 >= all * 3;
}

// Where each step keeps more than the one before, or works on more, its batches grow, and with them
// what only the next step replaces.
void DeviceDiagnosis::drop_what_grows_with_the_steps() {
  const auto replaced = [](const auto& each) { return each.second.traits.replaced; };
  if (std::ranges::none_of(leaks_, replaced)) return;
  const bool keeps_more = std::ranges::any_of(leaks_, [&](const auto& each) {
    return !replaced(each) && keeps_ever_more(summed(each.second.added), &Left::bytes);
  });
  if (keeps_more || batches_grow()) std::erase_if(leaks_, replaced);
}

// Among leaks that leave things in the same steps, as far as all of them tell.
void DeviceDiagnosis::share_traits() {
  struct Company {
    std::vector<LineLeak*> leaks;
    std::int64_t of_layers = 0;  // allocations
  };
  std::map<std::vector<std::int64_t>, Company> by_steps;
  for (auto& [frame, leak] : leaks_) {
    std::vector<std::int64_t> steps;
    std::int64_t count = 0;
    for (const auto& each : summed(leak.added)) {
      if (each.step >= trusted_) break;
      steps.push_back(each.step);
      count += each.count;
    }
    auto& company = by_steps[steps];
    company.leaks.push_back(&leak);
    if (leak.traits.in_layer) company.of_layers += count;
  }
  for (auto& [steps, company] : by_steps) {
    const auto of_step = company.of_layers / std::max<std::int64_t>(1, std::ssize(steps));
    LeakTraits shared;
    shared.many_places = of_step >= 3;
    for (auto* leak : company.leaks) {
      // A single one is an output that somebody keeps.
      leak->traits.recurrent = leak->traits.recurrent && of_step >= 2;
      add_shared(shared, leak->traits);
    }
    if (steps.empty()) continue;
    for (auto* leak : company.leaks) add_shared(leak->traits, shared);
  }
}

// The mean over the last whole cycles of a training and its evaluation, of which a part would weigh
// more than it should.
double DeviceDiagnosis::rate_of_cycles(std::span<const Left> left) const {
  const auto length = steps_.cycle.length();
  const auto span =
      std::max<std::int64_t>(1, (steps_.count() - left.front().step) / length) * length;
  return rate_of(left, std::max<std::int64_t>(0, steps_.count() - span), steps_.count())
      .bytes_per_step;
}

void DeviceDiagnosis::report_leaks() {
  std::vector<Left> all;
  std::vector<Left> all_left;
  std::int64_t onset = -1;
  drop_what_grows_with_the_steps();
  for (auto& [frame, leak] : leaks_) {
    trusted_ = std::min(trusted_, leak.trusted);
    onset = onset < 0 ? leak.onset : std::min(onset, leak.onset);
  }
  share_traits();
  if (!leaks_.empty()) only_call_ = only_call();
  for (auto& [frame, leak] : leaks_) {
    const auto end = std::max(leak.trusted, leak.onset + 1);
    all.insert(all.end(), leak.added.begin(), leak.added.end());
    leaked_before_ += leak.unborn_bytes;
    leak.added = summed(std::move(leak.added));
    auto left = leak.added;
    left.insert(left.end(), leak.young.begin(), leak.young.end());
    left = summed(std::move(left));
    all_left.insert(all_left.end(), left.begin(), left.end());
    auto rate = rate_of(leak.added, leak.onset, end);
    add_traits(leak, left, rate.period > 0);
    leak.onset = std::max(leak.onset, rate.begin);
    leak.period = rate.period > 0 ? rate.period : steps_.cycle.length();
    if (rate.period == 0 && !leak.traits.replaced && steps_.cycle.length() > 0) {
      rate.bytes_per_step = rate_of_cycles(left);
    } else if (rate.period == 0 && !leak.traits.replaced) {
      // What is young counts as well: without a period the last step weighs as any other.
      rate.bytes_per_step = rate_of(left, leak.onset, steps_.count()).bytes_per_step;
    }
    Finding finding;
    finding.device = result.device;
    finding.site = site(frame);
    const auto& rule = classify(leak.traits);
    finding.taxonomy = rule.taxonomy;
    finding.fix = rule.fix;
    finding.bytes_per_step = rate.bytes_per_step;
    finding.period = rate.period;
    finding.onset_step = onset_in_program(leak);
    leaking_steps_ =
        std::max(leaking_steps_, steps_.count() - leak.onset + steps_before_trace(leak));
    finding.live_bytes = leak.live_bytes;
    finding.live_allocations = leak.live_count;
    finding.block_bytes_per_step = rate.bytes_per_step * static_cast<double>(leak.block_bytes) /
                                   static_cast<double>(std::max<std::int64_t>(1, leak.live_bytes));
    // Of copies that each step replaces, and of a queue, it is known when there was one more, not
    // how old they are.
    if (!leak.traits.multiplied && !leak.traits.outrun)
      finding.ages = ages_of(left, steps_.count());
    finding.ages.before_trace = leak.unborn_count;
    finding.first_size = leak.first_size;
    finding.last_size = leak.last_size;
    const auto evidence = std::min(1.0, 0.5 + 0.05 * static_cast<double>(leak.times));
    const auto doubt = only_call_ != no_frame ? 0.6 : 1.0;
    finding.confidence = doubt * std::min(0.99, steps_.confidence * evidence);
    finding.reason =
        leak.traits.replaced
            ? fmt::format("one tensor is replaced by a larger one in each of {} steps; likely {}",
                          leak.times, rule.cause)
        : leak.traits.multiplied
            ? fmt::format("each step replaces what it holds, in {} steps by more of it; likely {}",
                          leak.times, rule.cause)
        : leak.traits.outrun
            ? fmt::format("more is added than is taken away, {} allocations by the dump; likely {}",
                          leak.live_count, rule.cause)
            : fmt::format(
                  "{} allocations are live at the dump, of {} steps, and nothing as old was ever "
                  "freed there; likely {}",
                  leak.live_count, leak.times, rule.cause);
    for (const auto id : snapshot_.stacks[leak.stack]) {
      if (finding.frames.size() == 12) break;
      if (sites_.frame(id).python != sites_.python()) continue;
      const auto each = site(id);
      finding.frames.push_back(each.is_function_alone()
                                   ? each.function
                                   : fmt::format("{}:{} {}", each.file, each.line, each.function));
    }
    result.findings.push_back(std::move(finding));
  }
  std::ranges::sort(result.findings, [](const Finding& left, const Finding& right) {
    return std::tuple(*right.bytes_per_step, left.site.line, left.site.file) <
           std::tuple(*left.bytes_per_step, right.site.line, right.site.file);
  });
  if (leaks_.empty()) return;
  const auto end = std::max(trusted_, onset + 1);
  const auto rate = rate_of(summed(std::move(all)), onset, end);
  result.period = rate.period;
  result.bytes_per_step = rate.bytes_per_step;
  if (rate.period == 0) {
    result.bytes_per_step = 0;
    for (const auto& finding : result.findings) result.bytes_per_step += *finding.bytes_per_step;
  }
  auto& leaked = result.steps.leaked_after;
  leaked.resize(static_cast<std::size_t>(steps_.count()));
  for (const auto& each : all_left) leaked[static_cast<std::size_t>(each.step)] += each.bytes;
  leaked.front() += leaked_before_;
  std::partial_sum(leaked.begin(), leaked.end(), leaked.begin());
  result.onset_step = result.findings.front().onset_step;
  for (const auto& finding : result.findings) {
    result.onset_step = std::min(result.onset_step, finding.onset_step);
  }
}

// Whether steps have a backward pass, whose events have no frames of the program.
bool DeviceDiagnosis::runs_backward() const {
  return sites_.any_frames() &&
         std::ranges::any_of(lifetimes_.allocations, [&](const Allocation& each) {
           return each.born >= steps_.begin.front() &&
                  sites_.stack(trace_[each.born].stack).path == 0;
         });
}

// The part of the bytes that the steps, and what follows them, allocate that is live at the dump.
double DeviceDiagnosis::kept_of_steps() const {
  double allocated = 0;
  double kept = 0;
  for (const auto& each : lifetimes_.allocations) {
    if (each.born < steps_.begin.front()) continue;
    const auto size = static_cast<double>(trace_[each.born].size);
    allocated += size;
    if (each.freed == no_event) kept += size;
  }
  return allocated == 0 ? 0 : kept / allocated;
}

// The line whose only call all iterations lie in, where nothing tells these from parts of a single
// step, such as the time steps of a forward pass: no mark, no backward pass, no optimizer, and they
// keep much of what they allocate. no_frame: there is none.
FrameId DeviceDiagnosis::only_call() const {
  if (is_marked(steps_) || runs_backward() || kept_of_steps() < keeps_much) return no_frame;
  PathId call = 0;
  for (const auto& each : lifetimes_.allocations) {
    const auto step = steps_.of(each.born);
    const auto& stack = sites_.stack(trace_[each.born].stack);
    if (stack.optimizer) return no_frame;
    if (step < 0 || step >= steps_.count() || stack.path == 0) continue;
    if (call == 0) call = sites_.caller(stack.path);
    while (sites_.outermost(stack.path, sites_.depth(call)) != call) call = sites_.caller(call);
    if (call == 0) return no_frame;
  }
  return call == 0 ? no_frame : sites_.last_frame(call);
}

// Whether the iterations are as many as the model has layers of one kind, or fewer and each of them
// too short for a pass through all layers, and keep much of what they allocate without a backward
// pass: one forward pass looks the same as that many steps.
bool DeviceDiagnosis::goes_round_layers() const {
  const auto count = steps_.count();
  if (is_marked(steps_) || runs_backward()) return false;
  std::map<std::pair<StackId, std::int64_t>, std::int64_t> before;
  std::set<std::pair<StackId, std::int64_t>> made;  // in the iterations
  for (const auto& each : lifetimes_.allocations) {
    const auto event = trace_[each.born];
    if (each.born < steps_.begin.front()) {
      if (each.freed == no_event) ++before[{event.stack, event.size}];
    } else if (event.stack != 0) {
      made.emplace(event.stack, event.size);
    }
  }
  for (const auto& each : lifetimes_.unborn) ++before[{each.stack, each.requested}];
  // What the iterations allocate as well is none of the model.
  std::erase_if(before, [&](const auto& each) { return made.contains(each.first); });
  return kept_of_steps() >= keeps_much && std::ranges::any_of(before, [&](const auto& each) {
           const auto layers = each.second;
           return layers == count || (layers > count && births_ * 2 <= layers * count);
         });
}

// Whether live blocks from before the trace tell that each line has kept as much for long.
bool DeviceDiagnosis::has_kept_before() const {
  return std::ranges::all_of(
      leaks_, [&](const auto& each) { return each.second.earlier_count >= 3 * each.second.times; });
}

// Whether an optimizer works in the trace, and not before the last of the iterations: they may be
// parts of one step.
bool DeviceDiagnosis::is_one_update() const {
  if (is_marked(steps_)) return false;
  const auto first = std::ranges::find_if(
      trace_, [&](const TraceEvent& event) { return sites_.stack(event.stack).optimizer; });
  return first != trace_.end() &&
         steps_.of(static_cast<EventIndex>(first - trace_.begin())) >= steps_.count() - 1;
}

// Whether about as many bytes as leak were freed, in most steps, of what was allocated before the
// trace: a full buffer does that, and its sizes vary. Or in any steps, of the same sizes: a list
// that is cleared now and then.
bool DeviceDiagnosis::is_made_up_for() const {
  const auto& series = result.steps.leaked_after;
  const auto leaked = series.empty() ? 0 : series.back() - leaked_before_;
  std::int64_t freed = 0;
  std::int64_t alike = 0;  // of the sizes that leak, and not of the step before the trace
  std::int64_t steps = 0;
  std::int64_t last = -1;
  for (const auto at : lifetimes_.unknown_frees) {
    const auto step = steps_.of(at);
    if (step < 0 || step >= steps_.count()) continue;
    const auto size = trace_[at].size;
    freed += size;
    alike += step > 0 && leaking_sizes_.contains(size) ? size : 0;
    steps += std::exchange(last, step) != step ? 1 : 0;
  }
  if (leaked > 0 && alike * 10 >= leaked * 8) return true;
  return leaked > 0 && steps >= 3 && steps * 2 >= steps_.count() && freed * 10 >= leaked * 8;
}

// Whether the level rose in each of the last steps, or evenly all the while, although no place
// leaks by the rules.
bool DeviceDiagnosis::level_rises() const {
  const auto& level = result.steps.live_after;
  const std::span<const std::int64_t> levels(level);
  if (rises_evenly(levels)) return true;
  // Without frames, what fills up at first hides what one line does all the while.
  if (!sites_.any_frames() && rises_evenly(levels.last(levels.size() / 2))) return true;
  const auto count = static_cast<std::int64_t>(level.size());
  const auto least = std::max<std::int64_t>(6, count * 2 / 3);
  if (count <= least) return false;
  for (auto step = count - least; step < count; ++step) {
    const auto at = static_cast<std::size_t>(step);
    if (level[at] <= level[at - 1]) return false;
  }
  return true;
}

// Whether the level rises in each step but the last, which frees what most of the others kept, and
// none has a backward pass.
bool DeviceDiagnosis::is_one_hill() const {
  const auto& level = result.steps.live_after;
  if (level.size() < 3 || is_marked(steps_) || runs_backward()) return false;
  const auto rises = [](std::int64_t before, std::int64_t after) { return before >= after; };
  if (std::adjacent_find(level.begin(), level.end() - 1, rises) != level.end() - 1 ||
      level.back() > level.front()) {
    return false;
  }
  const auto last = steps_.count() - 1;
  std::set<std::int64_t> kept;  // steps of which something lived that long
  for (const auto& each : lifetimes_.allocations) {
    const auto born = steps_.of(each.born);
    const bool freed = each.freed != no_event && steps_.of(each.freed) >= last;
    if (freed && born >= 0 && born < last) kept.insert(born);
  }
  return std::ssize(kept) * 3 >= last * 2;
}

void DeviceDiagnosis::decide() {
  const auto seen = steps_.count();
  const auto drop = [&](std::string why) {
    result.verdict = Verdict::undecided;
    result.findings.clear();
    result.steps.leaked_after.clear();
    result.bytes_per_step = 0;
    result.onset_step = -1;
    result.period = 0;
    limit(std::move(why));
  };
  const auto longer = fmt::format("record ten steps or more: {}", record_call);
  // Where nothing could be allocated, nothing could stay either.
  const bool all_failed =
      result.oom && births_ == 0 &&
      (seen > 0 || std::none_of(trace_.begin(), trace_.end(), [](const TraceEvent& event) {
         return event.kind == EventKind::alloc;
       }));
  if (all_failed) {
    drop(
        fmt::format("every allocation of the {} failed, so none could stay; where memory "
                    "suffices, {}",
                    seen > 0 ? "steps seen" : "trace", longer));
  } else if (lifetimes_.allocations.empty() && !lifetimes_.unknown_frees.empty()) {
    drop(
        fmt::format("the trace has no allocations, only what was freed; record all that happens, "
                    "without skip_actions, by {}",
                    record_call));
  } else if (seen == 0) {
    drop(steps_.why_none);
  } else if (births_ > 0 && loads_ * 3 >= births_) {
    drop(fmt::format("what comes again and again is the loading of a model, not a step; {}",
                     longer));
  } else if (seen < least_steps ||
             (!result.findings.empty() && seen < leak_steps && !has_kept_before())) {
    drop(
        fmt::format("the trace holds {} whole step{}: growth per step can't be told from what is "
                    "allocated once; {}",
                    seen, seen == 1 ? "" : "s", longer));
  } else if (!result.findings.empty() && freed_ == 0 && !is_marked(steps_) &&
             (seen < 8 || (births_ >= 2 * seen && result.findings.size() == 1))) {
    drop(fmt::format(
        "the iterations seen free nothing at all, as the building of a model would; {}", longer));
  } else if (!result.findings.empty() && goes_round_layers()) {
    drop(fmt::format(
        "the {} iterations seen may be layers of the model, which are as many or more: one "
        "forward pass looks like that. Where they are steps, say --steps {}",
        seen, seen));
  } else if (is_one_update()) {
    drop(
        fmt::format("the {} iterations seen come before the only step of an optimizer, as parts "
                    "of one step do; {}",
                    seen, longer));
  } else if (!result.findings.empty() && is_made_up_for()) {
    drop(
        fmt::format("{} keeps what it allocates, and as much is freed of what was there before the "
                    "trace, as in a full buffer; record with a larger max_entries than {}",
                    named(result.findings.front().site), trace_.size()));
  } else if (!result.findings.empty()) {
    result.verdict = Verdict::leak;
  } else if (in_one_phase_ > 0) {
    drop(
        fmt::format("{} keeps what it allocates in a phase that came once; record until a second "
                    "such phase has ended",
                    named(suspect_site_)));
  } else if (in_call_replaced_ > 0) {
    drop(
        fmt::format("a tensor of {} is replaced by a larger one in each iteration, as in the cache "
                    "of one long request; record until the next request has begun",
                    named(suspect_site_)));
  } else if (ended_ > 0) {
    drop(
        fmt::format("{} kept what it allocated as long as the steps came, and it was freed behind "
                    "them: dump before the loop ends, to see whether it is freed within it",
                    named(suspect_site_)));
  } else if (suspects_ > 0) {
    drop(suspect_times_ < 3
             ? fmt::format("{} kept something in too few steps to tell a leak from warm-up; record "
                           "three times as many steps",
                           named(suspect_site_))
             : fmt::format("{} kept something in {} of {} steps, too few or too uneven to tell a "
                           "leak from what is made now and then; record three times as many steps",
                           named(suspect_site_), suspect_times_, seen));
  } else if (level_rises()) {
    drop(
        "the level rises all the while and no line keeps what it allocates: sizes grow; record "
        "until they no longer do");
  } else if (is_one_hill()) {
    drop(
        "each iteration seen keeps something, and all of it is freed in the last one, as the parts "
        "of one step do; record until that has happened again");
  } else {
    result.verdict = Verdict::clean;
  }
}

void DeviceDiagnosis::tell_limits() {
  const bool known_before =
      std::ranges::any_of(lifetimes_.unborn, [](const Unborn& each) { return each.stack != 0; });
  if (known_before) {
    limit(
        fmt::format("the oldest events are gone ({} live blocks were allocated before those that "
                    "are left): a larger max_entries than {} keeps them",
                    lifetimes_.unborn.size(), trace_.size()));
  } else if (lifetimes_.begins_late()) {
    limit(
        fmt::format("{} live blocks and {} frees are of allocations before recording began, whose "
                    "lines are not known: start recording before the model is built",
                    lifetimes_.unborn.size(), lifetimes_.unknown_frees.size()));
  }
  if (lifetimes_.lost > 0) {
    limit(
        fmt::format("{} allocations of the trace are no longer there at the dump: dump before "
                    "recording is switched off",
                    lifetimes_.lost));
  }
  if (!sites_.any_frames()) {
    // Where it is undecided, live blocks by line are what is shown.
    const bool named = result.verdict == Verdict::undecided
                           ? names_a_live_block(snapshot_, sites_)
                           : std::ranges::any_of(result.findings, [](const Finding& finding) {
                               return !finding.site.file.empty();
                             });
    limit(fmt::format(R"(events have no frames, so {}: record with stacks="python", context="all")",
                      named ? "lines are told by the live blocks alone" : "no line can be named"));
  } else {
    const bool backward = std::ranges::any_of(trace_, [](const TraceEvent& event) {
      return event.kind == EventKind::alloc && event.stack == 0;
    });
    const bool kept = std::ranges::any_of(
        result.findings, [](const Finding& finding) { return finding.site.file.empty(); });
    if (backward && kept) {
      limit(
          "what leaks is allocated in a backward pass, whose events have no frames: record with "
          "stacks=\"all\"");
    }
  }
  if (result.verdict == Verdict::leak && only_call_ != no_frame) {
    limit(
        fmt::format("all {} iterations lie in one call at {} and keep much of what they allocate, "
                    "without a backward pass: where that call is one step, they are its parts and "
                    "nothing is told of it; record until it has been made ten times",
                    steps_.count(), named(site(only_call_))));
  }
  if (result.verdict == Verdict::leak) {
    limit(
        fmt::format("a buffer bounded at more than {} steps would look the same", leaking_steps_));
  } else if (result.verdict == Verdict::clean && steps_.count() <= few_steps) {
    limit(
        fmt::format("a leak that comes less often than each of the {} steps seen would not show: "
                    "record ten steps or more",
                    steps_.count()));
  }
  if (result.verdict == Verdict::clean) {
    if (auto grows = growing_reserve(snapshot_, static_cast<std::size_t>(result.device), steps_)) {
      limit(std::move(*grows));
    }
  }
  if (steps_.source == "sizes" || steps_.source == "lifetimes") {
    limit(fmt::format(
        "steps were found by their {} alone: frames or marks of steps would make it sure",
        steps_.source));
  }
}

}  // namespace

std::string named(const CodeSite& site) {
  if (site.file.empty()) return "an unknown line";
  if (site.is_function_alone()) return site.function;
  return fmt::format("{}:{} ({})", short_file(site.file), site.line, site.function);
}

Diagnosis diagnose_device(const Snapshot& snapshot, std::size_t device, const Sites& sites,
                          const DiagnoseOptions& options) {
  return DeviceDiagnosis(snapshot, device, sites, options).result;
}

}  // namespace leaklab
