// The rules are the tables below: part of a file's path or of a function's name, and what is said
// of the frame.
#include "sites.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace leaklab {
namespace {

enum Says : std::uint16_t {
  library = 1,
  framework = 2,
  inside_step = 4,
  never_inside_step = 8,  // wraps whole programs and loops, so it may stand above the loop
  optimizer = 16,
  loads_model = 32,
  recurrent = 64,
  layer = 128,
  comprehension = 256,
  loss = 512,
  copies = 1024,
};

struct Rule {
  std::string_view part;
  unsigned says;
};

// Where a path stops being a place on somebody's machine.
enum class Root : std::uint8_t {
  anywhere,  // the rule's part may stand anywhere in the path
  packages,  // the part stands where installed packages, or PyTorch's own sources, begin
  standard,  // likewise of the standard library
};

struct FileRule {
  Root root;
  std::string_view part;
  unsigned says;
};

// Of paths of Python files, backslashes turned. All that match count.
constexpr FileRule python_files[] = {
    {Root::standard, "", library | framework},
    {Root::standard, "copy.py", inside_step | copies},
    {Root::packages, "", library},
    {Root::anywhere, "<frozen ", library | framework},
    {Root::anywhere, "<__array_function__", library | framework},
    {Root::anywhere, "<eval_with_key>", library | framework | inside_step},
    {Root::anywhere, "<torch_package", library},
    {Root::anywhere, "/torchinductor_", library | framework | inside_step},
    {Root::packages, "torch/", library | framework | inside_step},
    {Root::packages, "torch/nn/modules/", layer},
    {Root::packages, "torch/nn/modules/loss.py", loss},
    {Root::packages, "torch/nn/modules/rnn.py", recurrent},
    {Root::packages, "torch/optim/", optimizer},
    {Root::packages, "torch/serialization.py", loads_model},
    {Root::packages, "apex/optimizers/", optimizer | inside_step},
    {Root::packages, "bitsandbytes/optim/", optimizer | inside_step},
    {Root::packages, "safetensors/", loads_model | inside_step},
    // Models and what they are made of, whose loops go round layers.
    {Root::packages, "transformers/models/", inside_step},
    {Root::packages, "diffusers/models/", inside_step},
    {Root::packages, "timm/", inside_step},
    {Root::packages, "torchvision/", inside_step},
    {Root::packages, "torchmetrics/", inside_step},
    {Root::packages, "peft/", inside_step},
    {Root::packages, "flash_attn/", inside_step},
    {Root::packages, "xformers/", inside_step},
    {Root::packages, "triton/", inside_step},
    {Root::packages, "deepspeed/runtime/zero/", inside_step},
    // One request: a loop over tokens.
    {Root::packages, "transformers/generation/", inside_step},
    // Stand above loops over steps.
    {Root::packages, "torch/utils/_contextlib.py", never_inside_step},
    {Root::packages, "torch/_dynamo/eval_frame.py", never_inside_step},
    {Root::packages, "torch/autograd/grad_mode.py", never_inside_step},
    {Root::packages, "torch/autograd/profiler.py", never_inside_step},
    {Root::packages, "torch/amp/autocast_mode.py", never_inside_step},
    {Root::packages, "torch/profiler/", never_inside_step},
    {Root::packages, "torch/utils/benchmark/", never_inside_step},
    {Root::packages, "torch/distributed/run.py", never_inside_step},
    {Root::packages, "torch/distributed/launch", never_inside_step},
    {Root::packages, "torch/distributed/elastic/", never_inside_step},
    {Root::packages, "torch/multiprocessing/", never_inside_step},
};

// Files by which PyTorch's own folder is known, wherever its sources lie.
constexpr std::string_view files_of_torch[] = {
    "nn/modules/module.py",
    "nn/functional.py",
    "optim/optimizer.py",
    "utils/_contextlib.py",
    "autograd/__init__.py",
    "_tensor.py",
    "_ops.py",
    "_compile.py",
};

// Whole names of Python functions.
constexpr Rule python_functions[] = {
    // A layer's, whoever wrote it; and what builds a model.
    {"forward", inside_step | layer},
    {"__init__", inside_step},
    {"<genexpr>", comprehension},
    {"<listcomp>", comprehension},
    {"<setcomp>", comprehension},
    {"<dictcomp>", comprehension},
    {"_apply", loads_model},
    {"load_state_dict", loads_model | inside_step},
    {"_load_from_state_dict", loads_model | inside_step},
    {"from_pretrained", loads_model | inside_step},
    {"binary_cross_entropy", loss},
    {"binary_cross_entropy_with_logits", loss},
    {"cosine_embedding_loss", loss},
    {"cross_entropy", loss},
    {"ctc_loss", loss},
    {"gaussian_nll_loss", loss},
    {"hinge_embedding_loss", loss},
    {"huber_loss", loss},
    {"kl_div", loss},
    {"l1_loss", loss},
    {"linear_cross_entropy", loss},
    {"margin_ranking_loss", loss},
    {"mse_loss", loss},
    {"multi_margin_loss", loss},
    {"multilabel_margin_loss", loss},
    {"multilabel_soft_margin_loss", loss},
    {"nll_loss", loss},
    {"poisson_nll_loss", loss},
    {"sigmoid_focal_loss", loss},
    {"smooth_l1_loss", loss},
    {"soft_margin_loss", loss},
    {"triplet_margin_loss", loss},
    {"triplet_margin_with_distance_loss", loss},
};

// Beginnings of names of C++ functions.
constexpr std::string_view native_libraries[] = {
    "at::",       "c10::", "c10d::", "caffe2::", "torch::", "std::",        "__gnu_cxx::",
    "pybind11::", "cudnn", "cublas", "nccl",     "THP",     "operator new",
};

// Beginnings of names of C functions, of which none tells its parameters.
constexpr std::string_view native_c_libraries[] = {
    "cuda",
    "__libc_",
    "__clone",
    "clone",
    "_start",
    "start_thread",
    "pthread_",
    "Py",
    "_Py",
    "gomp_",
    "GOMP_",
    "call_init",
    "_dl_",
    "dlopen",
    "cfunction_",
    "method_",
    "slot_tp_",
    "type_call",
    "object_",
    "run_mod",
    "run_eval",
    "partial_",
    "builtin_",
    "vectorcall_",
    "property_",
    "func_get",
    "bound_method",
    "unwind",
    "execute_native_thread_routine",
    "??",
};

// Folders in which Python lies on Windows, in lower case and without its version.
constexpr std::string_view windows_pythons[] = {
    "python", "conda", "miniconda", "anaconda", "miniforge", "mambaforge",
};

// A loop over steps stands in no deeper frame: there is recursion.
constexpr std::uint32_t deepest = 200;

bool ends_in(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view each) { return text.ends_with(each); });
}

// Native frames have no line, or one of a C++ source or of a shared object.
bool is_python(std::string_view file, std::uint64_t line) {
  if (file.empty() || file == "??" || line == 0 || line > 0x7fffffff) return false;
  return !ends_in(file,
                  {".cpp", ".cc", ".cxx", ".c", ".cu", ".cuh", ".h", ".hpp", ".inl", ".so"}) &&
         file.find(".so.") == std::string_view::npos;
}

// A leading slash, so that "torch/nn/..." is a folder like any other.
std::string path_of(std::string_view file) {
  std::string path = "/";
  path += file;
  std::ranges::replace(path, '\\', '/');
  return path;
}

// What follows the last "<folder>/" in the path; nothing where there is none.
std::optional<std::string_view> after(std::string_view folder, std::string_view path) {
  const auto at = path.rfind(folder);
  if (at == std::string_view::npos) return std::nullopt;
  return path.substr(at + folder.size());
}

// Whether it is the path, in lower case, of a folder of Python's own or of an environment.
bool is_windows_python(std::string_view path) {
  const auto slash = path.find_last_of('/');
  const auto folder = path.substr(slash + 1);
  const auto version = folder.find_last_not_of("0123456789._- ") + 1;
  return std::ranges::count(windows_pythons, folder.substr(0, version)) > 0 ||
         folder.starts_with("cpython-") || folder.starts_with("pythonsoftwarefoundation.") ||
         path.substr(0, slash).ends_with("/envs");
}

// The path within the standard library: .../lib/python3.12/..., or on Windows .../Python312/Lib/...
// and .../anaconda3/lib/...
std::optional<std::string_view> in_standard(std::string_view path) {
  for (const std::string_view library : {"/lib/python", "/lib64/python", "/lib/pypy"}) {
    const auto rest = after(library, path);
    const auto version = rest ? rest->find_first_not_of("0123456789.") : 0;
    if (version == 0 || version == std::string_view::npos) continue;
    // Of the builds that are free-threaded, and in an archive.
    for (const std::string_view end : {"/", "t/", "zip/"}) {
      if (rest->substr(version).starts_with(end)) return rest->substr(version + end.size());
    }
  }
  if (path.size() < 3 || path[2] != ':') return std::nullopt;
  const auto low = lower(path);
  const auto rest = after("/lib/", low);
  if (!rest) return std::nullopt;
  const auto above = std::string_view(low).substr(0, low.size() - rest->size() - 5);
  return is_windows_python(above) ? std::optional(path.substr(path.size() - rest->size()))
                                  : std::nullopt;
}

// The folders that hold PyTorch's package, of which a file by its name is among the frames.
std::vector<std::string> folders_of_torch(const Snapshot& snapshot) {
  std::set<std::string> folders{"/"};
  for (const auto& frame : snapshot.frames) {
    const auto file = snapshot.strings[frame.file];
    for (const auto known : files_of_torch) {
      if (!file.ends_with(known)) continue;
      auto folder = path_of(file.substr(0, file.size() - known.size()));
      if (!folder.ends_with("/torch/")) continue;
      folder.resize(folder.size() - std::string_view("torch/").size());
      folders.insert(std::move(folder));
    }
  }
  return {folders.begin(), folders.end()};
}

// The path within the folder of installed packages, or within a folder of those given.
std::optional<std::string_view> in_packages(std::string_view path,
                                            const std::vector<std::string>& folders_of_torch) {
  for (const std::string_view packages : {".egg/", ".whl/", "/site-packages/", "/dist-packages/"}) {
    if (const auto rest = after(packages, path)) return rest;
  }
  for (const auto& folder : folders_of_torch) {
    if (path.starts_with(folder) && path.substr(folder.size()).starts_with("torch/")) {
      return path.substr(folder.size());
    }
  }
  return std::nullopt;
}

unsigned said_of_file(std::string_view file, const std::vector<std::string>& folders_of_torch) {
  const auto path = path_of(file);
  const auto packaged = in_packages(path, folders_of_torch);
  const auto standard = packaged ? std::nullopt : in_standard(path);
  const auto matches = [&](const FileRule& rule) {
    switch (rule.root) {
      case Root::packages:
        return packaged && packaged->starts_with(rule.part);
      case Root::standard:
        return standard && standard->starts_with(rule.part);
      case Root::anywhere:
        break;
    }
    return path.find(rule.part) != std::string::npos;
  };
  unsigned says = 0;
  for (const auto& rule : python_files) {
    if (matches(rule)) says |= rule.says;
  }
  return says;
}

// No source is longer; a damaged file may say anything.
std::int64_t line_of(const Frame& frame) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(frame.line, 0xffffffff));
}

// A C++ function's name without its parameters, and without what it returns, which only those of
// templates tell.
std::string_view name_of(std::string_view function) {
  constexpr std::string_view no_parameters[] = {"(anonymous namespace)", "(auto)"};
  std::size_t name = 0;
  int templates = 0;
  for (std::size_t at = 0; at < function.size(); ++at) {
    if (function[at] == '<') ++templates;
    if (function[at] == '>') --templates;
    if (templates > 0) continue;
    if (function[at] == ' ' && !function.substr(0, at).ends_with("operator")) name = at + 1;
    if (function[at] != '(') continue;
    const auto rest = function.substr(at);
    const auto* const found = std::ranges::find_if(
        no_parameters, [&](std::string_view each) { return rest.starts_with(each); });
    if (found == std::end(no_parameters)) return function.substr(name, at - name);
    at += found->size() - 1;
  }
  return function;
}

bool is_native_library(std::string_view function, std::string_view name) {
  const auto begins_with_one_of = [&](const auto& beginnings) {
    return std::ranges::any_of(beginnings,
                               [&](std::string_view each) { return name.starts_with(each); });
  };
  return function.empty() || begins_with_one_of(native_libraries) ||
         (function.find('(') == std::string_view::npos && begins_with_one_of(native_c_libraries));
}

}  // namespace

std::string shown(std::string_view name) {
  std::string text(name);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

std::string lower(std::string_view text) {
  std::string low(text);
  std::ranges::transform(low, low.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return low;
}

Sites::Sites(const Snapshot& snapshot) : snapshot_(snapshot) {
  // Files and functions are far fewer than frames.
  std::vector<int> said_of_files(snapshot.strings.size(), -1);
  const auto torch = folders_of_torch(snapshot);
  // Without debug information a native frame has the program as its file and an offset as its line.
  std::vector<bool> is_program(snapshot.strings.size(), false);
  for (const auto& frame : snapshot.frames) {
    if (snapshot.strings[frame.function] == "_start") is_program[frame.file] = true;
  }
  frames_.reserve(snapshot.frames.size());
  for (const auto& frame : snapshot.frames) {
    const auto file = snapshot.strings[frame.file];
    const auto function = snapshot.strings[frame.function];
    FrameTraits traits;
    traits.python = is_python(file, frame.line) && !is_program[frame.file];
    if (traits.python) {
      auto& said = said_of_files[frame.file];
      if (said < 0) said = static_cast<int>(said_of_file(file, torch));
      auto says = static_cast<unsigned>(said);
      for (const auto& rule : python_functions) {
        if (rule.part == function) says |= rule.says;
      }
      traits.library = (says & library) != 0;
      traits.framework = (says & framework) != 0;
      traits.inside_step = (says & inside_step) != 0 && (says & never_inside_step) == 0;
      traits.optimizer = (says & optimizer) != 0;
      traits.loads_model = (says & loads_model) != 0 && traits.inside_step;
      traits.recurrent = (says & recurrent) != 0;
      traits.loss = (says & loss) != 0 && traits.library;
      traits.copies = (says & copies) != 0;
      traits.layer = (says & layer) != 0 && function != "__init__";
      // The base class wraps steps that a program writes itself.
      traits.takes_closure = traits.optimizer && function == "step" &&
                             !file.ends_with("/optimizer.py") && !file.ends_with("\\optimizer.py");
      traits.comprehension = (says & comprehension) != 0;
    } else {
      const auto name = name_of(function);
      traits.library = is_native_library(function, name);
      traits.framework = traits.library;
      const auto of = [&](std::string_view part) {
        return name.substr(0, name.find('<')).find(part) != std::string_view::npos;
      };
      traits.layer = name.substr(0, name.find('<')).ends_with("::forward");
      traits.inside_step = traits.library || traits.layer;
      traits.optimizer = of("::optim::");
      traits.engine = of("autograd::Engine::");
      traits.recurrent = of("::lstm") || of("::gru");
    }
    python_ = python_ || traits.python;
    frames_.push_back(traits);
  }
  nodes_.emplace_back();
  stacks_.reserve(snapshot.stacks.size());
  for (StackId id = 0; id < snapshot.stacks.size(); ++id) {
    any_frames_ = any_frames_ || !snapshot.stacks[id].empty();
    stacks_.push_back(traits_of(snapshot.stacks[id]));
  }
  // With context="state" live blocks have frames and events have none.
  for (const auto& trace : snapshot.traces) {
    if (trace.empty()) continue;
    any_frames_ =
        std::ranges::any_of(trace, [](const TraceEvent& event) { return event.stack != 0; });
    if (any_frames_) break;
  }
}

PathId Sites::child(PathId parent, FrameId frame) {
  const auto hash = (std::uint64_t{parent} * 0x9e3779b97f4a7c15u) ^
                    ((std::uint64_t{frame} + 1) * 0xc2b2ae3d27d4eb4fu);
  const auto mixed = hash ^ (hash >> 29);
  const auto found = children_.find(mixed, [&](std::uint32_t node) {
    return nodes_[node].parent == parent && nodes_[node].frame == frame;
  });
  if (found != HashIndex::none) return found;
  const auto node = static_cast<PathId>(nodes_.size());
  nodes_.push_back({parent, frame, nodes_[parent].depth + 1});
  children_.insert(mixed, node);
  return node;
}

// Whether these frames call no layer and no function of the program.
bool Sites::only_operations(std::span<const FrameId> frames) const {
  return std::ranges::none_of(frames, [&](FrameId id) {
    const auto& frame = frames_[id];
    return frame.python == python_ && (!frame.framework || frame.layer);
  });
}

// Whether an optimizer's step, the last of these frames or one that it calls, calls back what the
// program gave it: a forward and a backward pass, which belong to the loop outside.
bool Sites::calls_closure(std::span<const FrameId> frames) const {
  bool closure = false;  // what calls the frame above is the program's
  for (auto left = frames.size(); left-- > 0;) {
    const auto& frame = frames_[frames[left]];
    if (frame.python != python_) continue;
    if (!frame.framework) return closure;
    if (frame.optimizer) closure = frame.takes_closure;
  }
  return false;
}

StackTraits Sites::traits_of(std::span<const FrameId> stack) {
  StackTraits traits;
  FrameId packaged = no_frame;  // innermost of an installed package that is no framework
  bool engine = false;
  bool past_site = false;  // what the site calls, and its own function, were looked at
  for (const auto id : stack) {
    const auto& frame = frames_[id];
    engine = engine || frame.engine;
    traits.optimizer = traits.optimizer || frame.optimizer;
    traits.recurrent = traits.recurrent || frame.recurrent;
    traits.loads_model = traits.loads_model || frame.loads_model;
    if (frame.python != python_) continue;
    if (!past_site) {
      traits.in_layer = traits.in_layer || frame.layer;
      traits.in_loss = traits.in_loss || frame.loss;
      traits.in_copy = traits.in_copy || frame.copies;
      past_site = !frame.library;
    }
    if (traits.site == no_frame && !frame.library) traits.site = id;
    if (packaged == no_frame && !frame.framework) packaged = id;
  }
  if (traits.site == no_frame) traits.site = packaged;
  // Native stacks begin in the C library.
  bool begun = python_;
  for (auto left = stack.size(); left-- > 0;) {
    const auto id = stack[left];
    const auto& frame = frames_[id];
    if (frame.python != python_) continue;
    if (!python_ && !frame.library) begun = true;
    if (!begun) continue;
    if (nodes_[traits.path].depth == deepest) break;
    if (frame.optimizer && calls_closure(stack.first(left + 1))) {
      traits.path = child(traits.path, id);
      continue;
    }
    // What a line of the program makes by calling its own function is a part of what it makes.
    const bool recurs = !frame.library && traits.path != 0 && last_frame(traits.path) == id;
    if (recurs || frame.inside_step ||
        (frame.comprehension && only_operations(stack.first(left)))) {
      traits.callee = id;
      break;
    }
    traits.path = child(traits.path, id);
  }
  // Native frames show the threads of the backward pass, which stand in no loop of the program.
  if (engine && !python_) traits.path = 0;
  return traits;
}

PathId Sites::outermost(PathId path, std::uint32_t depth) const {
  while (nodes_[path].depth > depth) path = nodes_[path].parent;
  return path;
}

Sites::Fork Sites::fork(PathId first, PathId second) const {
  Fork fork;
  // The nodes just below the last common one.
  PathId left = 0;
  PathId right = 0;
  while (nodes_[first].depth > nodes_[second].depth) {
    left = first;
    first = nodes_[first].parent;
  }
  while (nodes_[second].depth > nodes_[first].depth) {
    right = second;
    second = nodes_[second].parent;
  }
  while (first != second) {
    left = first;
    right = second;
    first = nodes_[first].parent;
    second = nodes_[second].parent;
  }
  fork.shared = nodes_[first].depth;
  if (left == 0 || right == 0) {
    // One is where the other was called from: a move in the caller, which stays on its line.
    fork.shared -= fork.shared > 0 ? 1 : 0;
    return fork;
  }
  const auto& from = snapshot_.frames[nodes_[left].frame];
  const auto& to = snapshot_.frames[nodes_[right].frame];
  fork.same_function = from.file == to.file && from.function == to.function;
  if (fork.same_function) {
    fork.back = line_of(from) - line_of(to);
  }
  return fork;
}

}  // namespace leaklab
