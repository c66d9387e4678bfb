// The CPU environment's allocator: every CPU tensor of the run comes from it and is logged.
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "context.h"
#include "leaklab/event_log.h"
#include "leaklab/probe.h"

namespace leaklab {
namespace {

// What lies before each block. The mark tells our blocks from those that LibTorch allocated before
// we were installed, which come back through raw_deallocate.
struct Header {
  void* raw;
  std::int64_t bytes;
  std::uint64_t mark;
};

constexpr std::size_t alignment = 64;  // c10::gAlignment: what LibTorch's kernels expect
constexpr std::uint64_t mark_key = 0x6c65616b6c616221ULL;

std::uint64_t mark_of(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) ^ mark_key;
}

Header* header_of(void* block) { return static_cast<Header*>(block) - 1; }

void release(void* block) {
  if (block == nullptr) return;
  Header* header = header_of(block);
  if (header->mark != mark_of(block)) {
    c10::GetDefaultCPUAllocator()->raw_deleter()(block);
    return;
  }
  header->mark = 0;
  event_log().add(Action::free, header->bytes);
  if (auto* sites = site_table()) sites->on_free(block);
  std::free(header->raw);
}

class RecordingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    // Aligned by hand: posix_memalign takes twice as long as malloc.
    void* raw = bytes < SIZE_MAX - 2 * alignment ? std::malloc(bytes + 2 * alignment) : nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, raw != nullptr, "CPU allocator: no memory for ", bytes,
                     " bytes");
    const auto address = reinterpret_cast<std::uintptr_t>(raw) + sizeof(Header) + alignment - 1;
    auto* block = reinterpret_cast<void*>(address / alignment * alignment);
    *header_of(block) = {raw, static_cast<std::int64_t>(bytes), mark_of(block)};
    event_log().add(Action::alloc, static_cast<std::int64_t>(bytes));
    if (auto* sites = site_table()) sites->on_alloc(block, static_cast<std::int64_t>(bytes));
    return {block, block, &release, cpu};
  }
  // oneDNN's scratch memory comes and goes through the raw calls, which need context == data.
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

class CpuAllocator final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override {
    return {"live_allocations", "peak", "requested"};
  }

  std::string do_start(const Environment& environment) override {
    if (environment.backend != "cpu") return "records the CPU environment only";
    // Immortal: tensors may be freed after main.
    static auto* allocator = new RecordingAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/1);
    return "";
  }

  void do_sample(Sample& into) override { sample_events(into); }
};

LEAKLAB_PROBE(cpu_allocator, CpuAllocator);

}  // namespace
}  // namespace leaklab
