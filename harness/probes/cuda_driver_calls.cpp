#include "cuda_driver_calls.h"

#ifdef LEAKLAB_WITH_CUPTI
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#endif

namespace leaklab {

#ifdef LEAKLAB_WITH_CUPTI
namespace {

// The CUPTI that LibTorch has loaded, whichever it is: linking to one of our own could load two.
template <class Function>
Function* cupti(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

struct Block {
  std::int64_t bytes = 0;
  int references = 1;
};

struct Table {
  std::atomic<std::int64_t> bytes{0};
  std::mutex mutex;
  std::unordered_map<CUdeviceptr, Block> pointers;
  std::unordered_map<CUmemGenericAllocationHandle, Block> handles;
  // Tells the device of a context; nullptr where there is only one device.
  decltype(&cuptiGetDeviceId) device_of = nullptr;

  template <class Key>
  void add(std::unordered_map<Key, Block>& blocks, Key key, std::size_t size) {
    const std::lock_guard lock(mutex);
    const auto added = static_cast<std::int64_t>(size);
    if (blocks.try_emplace(key, Block{added}).second) bytes += added;
  }

  // What is not in the table was allocated before we looked, or on another device.
  template <class Key>
  void drop(std::unordered_map<Key, Block>& blocks, Key key) {
    const std::lock_guard lock(mutex);
    const auto found = blocks.find(key);
    if (found == blocks.end() || --found->second.references > 0) return;
    bytes -= found->second.bytes;
    blocks.erase(found);
  }

  void retain(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(mutex);
    const auto found = handles.find(handle);
    if (found != handles.end()) ++found->second.references;
  }

  bool on_device_0(CUcontext context) const {
    std::uint32_t device = 0;
    return device_of == nullptr || device_of(context, &device) != CUPTI_SUCCESS || device == 0;
  }
};

Table& table() {
  // Immortal: libraries may free when static objects are gone.
  static auto* immortal = new Table;
  return *immortal;
}

// Managed memory is not followed: it lies where it was last touched. Neither are contexts, modules,
// streams and what the driver takes for itself, which no call tells the size of.
constexpr std::array followed{
    CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemCreate,
    CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle,
    CUPTI_DRIVER_TRACE_CBID_cuMemRelease,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz,
};

template <class Params>
const Params& params_of(const CUpti_CallbackData& call) {
  return *static_cast<const Params*>(call.functionParams);
}

template <class Params>
void on_alloc(const CUpti_CallbackData& call) {
  const auto& params = params_of<Params>(call);
  if (table().on_device_0(call.context))
    table().add(table().pointers, *params.dptr, params.bytesize);
}

void on_create(const CUpti_CallbackData& call) {
  const auto& params = params_of<cuMemCreate_params>(call);
  const auto& location = params.prop->location;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0) {
    table().add(table().handles, *params.handle, params.size);
  }
}

// Before the call: once memory is free, another thread may be given the same address.
void on_enter(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
      return table().drop(table().pointers, params_of<cuMemFree_v2_params>(call).dptr);
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz:
      return table().drop(table().pointers, params_of<cuMemFreeAsync_params>(call).dptr);
    case CUPTI_DRIVER_TRACE_CBID_cuMemRelease:
      return table().drop(table().handles, params_of<cuMemRelease_params>(call).handle);
    default:
      return;
  }
}

void on_success(CUpti_CallbackId id, const CUpti_CallbackData& call) {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2:
      return on_alloc<cuMemAlloc_v2_params>(call);
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz:
      return on_alloc<cuMemAllocAsync_params>(call);
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz:
      return on_alloc<cuMemAllocFromPoolAsync_params>(call);
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2: {
      const auto& params = params_of<cuMemAllocPitch_v2_params>(call);
      if (!table().on_device_0(call.context)) return;
      return table().add(table().pointers, *params.dptr, *params.pPitch * params.Height);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemCreate:
      return on_create(call);
    case CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle:
      return table().retain(*params_of<cuMemRetainAllocationHandle_params>(call).handle);
    default:
      return;
  }
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite == CUPTI_API_ENTER) {
    on_enter(id, call);
  } else if (*static_cast<const CUresult*>(call.functionReturnValue) == CUDA_SUCCESS) {
    on_success(id, call);
  }
}

std::string subscribe(std::int64_t devices) {
  const auto subscribe = cupti<decltype(cuptiSubscribe)>("cuptiSubscribe");
  const auto unsubscribe = cupti<decltype(cuptiUnsubscribe)>("cuptiUnsubscribe");
  const auto enable = cupti<decltype(cuptiEnableCallback)>("cuptiEnableCallback");
  const auto device_of = cupti<decltype(cuptiGetDeviceId)>("cuptiGetDeviceId");
  if (subscribe == nullptr || unsubscribe == nullptr || enable == nullptr || device_of == nullptr) {
    return "this LibTorch loads no CUPTI";
  }
  if (devices > 1) table().device_of = device_of;
  CUpti_SubscriberHandle subscriber = nullptr;
  if (const auto error = subscribe(&subscriber, &on_call, nullptr); error != CUPTI_SUCCESS) {
    return fmt::format("CUPTI refuses a subscriber (error {}): is a profiler attached?",
                       static_cast<int>(error));
  }
  for (const auto id : followed) {
    const auto error =
        enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, static_cast<CUpti_CallbackId>(id));
    if (error == CUPTI_SUCCESS) continue;
    unsubscribe(subscriber);
    return fmt::format("CUPTI can't follow driver call {} (error {})", static_cast<int>(id),
                       static_cast<int>(error));
  }
  return "";
}

}  // namespace

std::string follow_driver_calls(std::int64_t devices) {
  // One subscriber for the process, however many probes ask.
  static const auto reason = subscribe(devices);
  return reason;
}

std::int64_t driver_call_bytes() { return table().bytes.load(std::memory_order_relaxed); }

#else

std::string follow_driver_calls(std::int64_t) { return "this build has no CUPTI"; }
std::int64_t driver_call_bytes() { return 0; }

#endif

}  // namespace leaklab
