// A source of measurements. One file a probe, in harness/probes/; nothing else to edit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/recording.h"

namespace leaklab {

// Values of the channels at one moment.
using Sample = std::map<std::string, std::int64_t, std::less<>>;

class Probe {
 public:
  virtual ~Probe() = default;
  Probe() = default;
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Channels that it measures; each is in channels().
  std::vector<std::string> channels() const { return do_channels(); }
  // Begins to measure, before the first allocation of the run. Returns why it can't, or "".
  std::string start(const Environment& environment) { return do_start(environment); }
  void begin_step(std::int64_t step) { do_begin_step(step); }
  // Called after the device was synchronised. Adds the values of its channels.
  void sample(Sample& into) { do_sample(into); }
  // Gives cached memory back, so that what is held can be told from what is cached.
  void empty_caches() { do_empty_caches(); }

 protected:
  virtual std::vector<std::string> do_channels() const = 0;
  virtual std::string do_start(const Environment& environment) = 0;
  virtual void do_begin_step(std::int64_t) {}
  virtual void do_sample(Sample& into) = 0;
  virtual void do_empty_caches() {}
};

using ProbeFactory = std::function<std::unique_ptr<Probe>()>;

struct NamedProbe {
  std::string name;
  ProbeFactory make;
};

// All probes of this program, sorted by name.
const std::vector<NamedProbe>& probes();

struct ProbeRegistration {
  ProbeRegistration(std::string name, ProbeFactory make);
};

#define LEAKLAB_PROBE(name, Type)                                  \
  static const ::leaklab::ProbeRegistration leaklab_probe_##name { \
#name, [] { return std::make_unique<Type>(); }                 \
  }

}  // namespace leaklab
