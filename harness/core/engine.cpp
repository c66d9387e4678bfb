#include "leaklab/engine.h"

namespace leaklab {
namespace {

Engine*& installed() {
  static Engine* engine = nullptr;
  return engine;
}

}  // namespace

Engine* engine() { return installed(); }

void set_engine(Engine* engine) { installed() = engine; }

}  // namespace leaklab
