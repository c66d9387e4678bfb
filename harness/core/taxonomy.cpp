#include "leaklab/taxonomy.h"

#include <algorithm>
#include <array>

namespace leaklab {
namespace {

constexpr std::array<TaxonomyClass, 66> table{{
    {"C01", "planted growth", "each channel grows by the amount that was planted in it"},
    {"C02", "flat loop", "no channel moves"},
    {"L01", "loss sum with history",
     "allocated bytes linear (see split in notes: tiny after backward, one activation set without "
     "backward); nodes linear; reserved follows; driver follows"},
    {"L02", "attached outputs kept in list/buffer",
     "allocated bytes linear, step = saved activations; live tensors and nodes linear"},
    {"L03", "recurrent state carried without cut",
     "allocated bytes linear, nodes linear, step time linear (total time quadratic)"},
    {"L04", "running statistic / EMA / in-place buffer updated in grad mode",
     "nodes strictly linear, allocated bytes small-linear or one input set per step; host RSS "
     "linear"},
    {"L05", "history grown by cat in grad mode",
     "allocated bytes superlinear (quadratic if history unbounded, linear if capped); peak 2x "
     "history"},
    {"L06", "create_graph: (a) x/x.grad cycle, (b) .grad with history never reset",
     "allocated bytes linear, survives scope exit and emptyCache; live tensors+nodes linear"},
    {"L07", "custom Function keeps tensors outside save_for_backward (saved_data)",
     "with own output: linear for ever when backward is skipped; with input: plateau +1 set"},
    {"L08", "hook closure / pack hook cycle",
     "allocated bytes linear; only when backward is skipped, retained or create_graph; conditional "
     "on path"},
    {"L09", "activation stash on the module", "linear (vector) or step-then-flat (slot) after run"},
    {"L10", "callbacks stack up, never removed",
     "superlinear: step n adds n copies; also step time linear"},
    {"L11", "error/skip path retention",
     "step per fault: 2 graphs alive, or buffer set left; zero growth on clean steps"},
    {"L12", "inference in grad mode",
     "peak-only +activation set if outputs die; linear if outputs are kept; nodes non-zero in "
     "eval"},
    {"L13", "optimiser state of replaced parameters orphaned",
     "step per replacement = 2x parameter bytes (Adam); live tensors +2-3 per parameter"},
    {"L14", "reload duplicates state / checkpoint kept on device",
     "step per load, equal to state bytes; peak 2x"},
    {"L15", "hand-written update recorded by autograd",
     "nodes linear; allocated bytes linear = parameter bytes per step; 2 MiB reserve stairs when "
     "small"},
    {"L16", "registry of device copies (adapters, snapshots, leftover grads)",
     "step per load, 0 freed on unload"},
    {"L17", "metric list state never reset",
     "allocated bytes linear, step = preds+targets; live tensors +k per step; nodes zero"},
    {"L18", "per-epoch output list", "sawtooth with epoch period; leaky variant misses the drop"},
    {"L19", "evaluation aggregate on device, cat at end",
     "linear then 2x spike at the end of the phase"},
    {"L20", "tensor cache keyed by shape",
     "steps on first sight of a shape, flat once shapes repeat; unbounded for unbounded shapes"},
    {"L21", "per-request state kept (KV) on abort/return",
     "step per aborted request; app pool counter may rise with device flat"},
    {"L22", "small view or shrunk tensor pins big storage",
     "allocated bytes linear by storage size while sum of live tensor bytes stays tiny"},
    {"L23", "trickle of 0-dim device tensors",
     "allocated bytes +512 B/step, requested +4 B/step, reserved +2 MiB per 4096"},
    {"L24", "owner cycle (shared_ptr / self-capturing lambda)",
     "step per object built; live tensors linear; no sawtooth in C++"},
    {"L25", "raw tensor handle without owner (also on throw)",
     "allocated bytes linear per call or per rejected call; no visible owner"},
    {"L26", "DLPack deleter not called",
     "allocated bytes linear, step = tensor; host-only for empty tensors"},
    {"L27", "foreign device scratch never freed",
     "driver linear; alloc/reserved/active flat; emptyCache no effect"},
    {"L28", "autocast cast cache in a long scope",
     "linear within scope with fresh leaf weights, drop to zero at exit"},
    {"L29", "failed/abandoned capture", "reserved step, active 0, emptyCache cannot reclaim"},
    {"L30", "captured graph per shape, never evicted",
     "reserved step per shape; allocated bytes nearly flat"},
    {"L31", "record_stream inside capture", "active > allocated, linear inside capture"},
    {"L32", "new stream per step",
     "reserved stairs, allocated bytes flat; plateau at 32 pool streams (x priority), unbounded "
     "with external streams; emptyCache recovers"},
    {"L33", "deferred free (record_stream, run-ahead; pinned twin)",
     "active - allocated gap grows with run-ahead, 0 after sync + allocator call"},
    {"L34", "cuBLAS workspace per handle x stream / per capture",
     "allocated bytes step = workspace per new pair; survives emptyCache; cleared by "
     "clearCublasWorkspaces"},
    {"L35", "thread per request",
     "driver/host linear in threads ever alive at once or created; allocator flat"},
    {"L36", "library plan cache per shape (a cuDNN host, b cuFFT driver)",
     "(a) host RSS linear in distinct shapes x threads; (b) driver 2 MiB stairs; both flat at cap"},
    {"L37", "sparse accumulator never coalesced",
     "nnz and allocated bytes linear per backward without zeroing; step time rises"},
    {"L38", "raw CUDA objects (stream, event, module, host registration)",
     "driver 2 MiB stairs every k objects or linear per module; page-locked pages for "
     "registration"},
    {"L39", "communicator/process-group re-creation",
     "driver step per cycle (hundreds of MB); allocator flat"},
    {"L40", "collective Work never waited / kept",
     "allocated bytes linear = tensor per call; live tensors linear"},
    {"L41", "CUDA IPC producer parking list",
     "producer allocated bytes stays with zero live tensors; step per share"},
    {"L42", "pinned pool growth with varying sizes",
     "pinned allocated_bytes stairs, active_bytes flat; never returned without host empty_cache"},
    {"L43", "per-instance compile/JIT caches", "host linear or device step per compiled instance"},
    {"L44", "profiler/observer retains inputs or events",
     "allocated bytes linear while on (inputs); host linear (events)"},
    {"L45", "long-lived small survivors strand segments",
     "reserved linear, allocated bytes nearly flat, inactive_split_bytes large; emptyCache "
     "recovers little"},
    {"N01", "allocator cache keeps freed memory",
     "reserved flat high, allocated bytes returns to base"},
    {"N02", "first backward/first step allocations",
     "two one-off steps: +1x weights, +2x weights (Adam)"},
    {"N03", "cudnn benchmark probing", "early peak, flat or lower later"},
    {"N04", "CUDA context and lazy kernel loading",
     "driver one-off hundreds of MB plus small first-use steps"},
    {"N05", "cuBLAS workspace visible in allocated",
     "one-off (8,519,680 B on A10G, cu118; size is device-dependent)"},
    {"N06", "variable sizes warm up to a high-water mark",
     "rise, then flat once the largest size was seen"},
    {"N07", "bounded fragmentation", "reserved well above alloc, no trend"},
    {"N08", "autocast casts of weights inside scope", "+0.5x fp32 weights in scope, zero after"},
    {"N09", "communicator buffers at first collective", "driver one-off"},
    {"N10", "pinned rounding and retained pool", "pinned x up to 2, flat"},
    {"N11", "fused/foreach intermediates", "peak only"},
    {"N12", "gradient accumulation window", "grads held between zeroing; sawtooth or flat"},
    {"N13", "dense gradients never zeroed",
     "no device bytes: gradients are added in place, their values are wrong"},
    {"N14", "repeated .to(device) on same device", "flat: returns same tensor"},
    {"N15", "periodic sawtooth that returns to base", "epoch lists, collector-driven"},
    {"N16", "KV growth inside one request", "linear then zero"},
    {"N17", "bounded cache/replay filling",
     "linear to capacity then flat: needs a run longer than fill"},
    {"N18", "two graphs alive by scoping / double buffer", "flat at 2x"},
    {"N19", "process-lifetime objects at exit", "constant, reported by leak checkers"},
}};

}  // namespace

std::span<const TaxonomyClass> taxonomy() { return table; }

const TaxonomyClass* find_class(std::string_view id) {
  const auto found = std::ranges::find(table, id, &TaxonomyClass::id);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace leaklab
