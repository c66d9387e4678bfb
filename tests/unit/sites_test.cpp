// What the stacks of a snapshot say about the loop that they were taken in.
#include "analysis/sites.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::MadeStack;
using made::Program;

// Of one allocation from that stack.
StackTraits traits_of(const MadeStack& stack, std::uint32_t& depth) {
  Program program;
  program.alloc(stack, 640);
  const auto snapshot = program.dump();
  const Sites sites(snapshot);
  const auto traits = sites.stack(snapshot.traces[0].front().stack);
  depth = sites.depth(traits.path);
  return traits;
}

TEST(Sites, a_function_that_calls_itself_ends_the_path_and_one_in_between_does_not) {
  const auto frame = [](std::string function, std::uint64_t line) {
    return made::MadeFrame{"/home/me/train.py", std::move(function), line};
  };
  std::uint32_t depth = 0;
  auto traits = traits_of({frame("encode", 26), frame("encode", 26), frame("main", 34)}, depth);
  EXPECT_EQ(depth, 2u);
  EXPECT_NE(traits.callee, no_frame);
  traits = traits_of({frame("train", 20), frame("timed", 5), frame("main", 30), frame("timed", 5)},
                     depth);
  EXPECT_EQ(depth, 4u);
  EXPECT_EQ(traits.callee, no_frame);
}

TEST(Sites, a_path_ends_where_only_recursion_goes_so_deep) {
  MadeStack stack;
  for (std::uint64_t line = 1; line <= 1000; ++line) {
    stack.push_back({"/home/me/train.py", line % 2 == 0 ? "even" : "odd", line});
  }
  std::uint32_t depth = 0;
  traits_of(stack, depth);
  EXPECT_EQ(depth, 200u);
}

// ---------------------------------------------------------------- whose a frame is, and what it
// does

// Of the outermost frame of that stack, in words.
std::string said_of(const MadeStack& stack) {
  Program program;
  program.alloc(stack, 640);
  const auto snapshot = program.dump();
  const auto frame = Sites(snapshot).frame(snapshot.stacks[1].back());
  std::string said = frame.framework ? "framework" : frame.library ? "package" : "the user's";
  if (!frame.python) said += ", native";
  const std::pair<bool, const char*> does[] = {
      {frame.inside_step, "in a step"},
      {frame.layer, "layer"},
      {frame.comprehension, "comprehension"},
      {frame.optimizer, "optimizer"},
      {frame.takes_closure, "calls closures"},
      {frame.loads_model, "loads a model"},
      {frame.recurrent, "recurrent"},
      {frame.loss, "loss"},
      {frame.copies, "copies"},
      {frame.engine, "backward pass"},
  };
  for (const auto& [is, word] : does) said += is ? std::string(", ") + word : "";
  return said;
}

std::string said_of(const std::string& file, const std::string& function, std::uint64_t line = 12) {
  return said_of({{file, function, line}});
}

struct PythonFrames {
  const char* said;
  std::vector<const char*> files;
};

TEST(Sites, whose_a_python_file_is_and_what_it_does_in_a_step_is_told_by_where_it_lies) {
  const PythonFrames each_frames[] = {
      {"the user's",
       {"/home/me/train.py",
        "train.py",
        "/home/me/timm.py",
        "/home/me/projects/apex/train.py",
        "/home/me/timm/train.py",
        "/home/me/torchmetrics/metric.py",
        "/home/me/copy.py",
        "/home/me/deepspeed/runtime/zero/stage3.py",
        "/home/me/safetensors/torch.py",
        "/workspace/transformers/models/mine/modeling_mine.py",
        "/home/me/site-packages.py",
        "/home/me/lib/python/train.py",
        "/opt/conda/train.py",
        "/opt/conda/lib/train.py",
        "<stdin>",
        "<string>",
        "<ipython-input-3-1b2c>",
        "/tmp/ipykernel_4711/123456.py",
        R"(C:\Users\me\train.py)",
        R"(C:\Users\me\timm\train.py)",
        R"(C:\Users\me\lib\copy.py)",
        R"(D:\python_projects\lib\model.py)",
        R"(D:\envs\lib\model.py)"}},
      {"framework",
       {"/usr/lib/python3.11/threading.py",
        "/usr/lib64/python3.9/contextlib.py",
        "/opt/conda/lib/python3.10/asyncio/base_events.py",
        "/usr/lib/pypy3.10/functools.py",
        "/opt/conda/envs/train/lib/python3.12/runpy.py",
        "/usr/lib/python3.13t/threading.py",
        "/usr/lib/python311.zip/threading.py",
        R"(C:\Python311\Lib\threading.py)",
        R"(C:\Program Files\Python 3.11\Lib\threading.py)",
        R"(C:\Program Files\Microsoft Visual Studio\Shared\Python37_64\Lib\threading.py)",
        R"(C:\tools\conda\lib\threading.py)",
        R"(C:\ProgramData\Anaconda3\Lib\threading.py)",
        R"(C:\Users\me\miniconda3\envs\train\lib\threading.py)",
        R"(C:\Users\me\miniconda3\lib\threading.py)",
        R"(C:\Users\me\miniforge3\Lib\threading.py)",
        R"(C:\Users\me\mambaforge\Lib\threading.py)",
        R"(C:\Users\me\AppData\Roaming\uv\python\cpython-3.12.7-windows-x86_64-none\Lib\queue.py)",
        R"(C:\Program Files\WindowsApps\PythonSoftwareFoundation.Python.3.11_3.11.2544.0_x64\Lib\a.py)",
        "<frozen importlib._bootstrap>",
        "<__array_function__ internals>"}},
      {"framework, in a step, copies",
       {"/usr/lib/python3.11/copy.py", R"(C:\Users\me\miniconda3\envs\train\lib\copy.py)"}},
      // Loops over steps stand in these.
      {"package",
       {"/opt/conda/lib/python3.10/site-packages/pytorch_lightning/loops/fit_loop.py",
        "/usr/lib/python3/dist-packages/transformers/trainer.py",
        "/home/me/.local/lib/python3.11/site-packages/accelerate/accelerator.py",
        "/home/me/.venv/lib/python3.12/site-packages/IPython/core/interactiveshell.py",
        "/usr/lib/python3/dist-packages/diffusers/training_utils.py",
        "/usr/lib/python3/dist-packages/deepspeed/runtime/engine.py",
        "/usr/lib/python3/dist-packages/apex/amp/handle.py",
        "/usr/lib/python3/dist-packages/copy.py",
        R"(C:\Users\me\venv\Lib\site-packages\lightning\fabric\fabric.py)",
        "/home/me/.pex/wheels/0a1b/lightning-2.4-py3-none-any.whl/lightning/fabric.py",
        "<torch_package_0>.model.py"}},
      // Their loops go round layers, tokens or parameters.
      {"package, in a step",
       {"/opt/conda/lib/python3.10/site-packages/timm/layers/drop.py",
        "/usr/lib/python3.8/site-packages/timm-0.9.2-py3.8.egg/timm/layers/drop.py",
        "/home/me/.pex/wheels/0a1b/timm-0.9.2-py3-none-any.whl/timm/layers/drop.py",
        R"(C:\Users\me\venv\Lib\site-packages\timm\layers\drop.py)",
        "/usr/lib/python3/dist-packages/torchvision/ops/boxes.py",
        "/usr/lib/python3/dist-packages/torchmetrics/metric.py",
        "/usr/lib/python3/dist-packages/peft/tuners/lora/layer.py",
        "/usr/lib/python3/dist-packages/flash_attn/flash_attn_interface.py",
        "/usr/lib/python3/dist-packages/xformers/ops/fmha/__init__.py",
        "/usr/lib/python3/dist-packages/triton/runtime/jit.py",
        "/usr/lib/python3/dist-packages/transformers/models/gpt2/modeling_gpt2.py",
        "/usr/lib/python3/dist-packages/transformers/generation/utils.py",
        "/usr/lib/python3/dist-packages/diffusers/models/unets/unet_2d.py",
        "/usr/lib/python3/dist-packages/deepspeed/runtime/zero/stage3.py"}},
      {"package, in a step, optimizer",
       {"/usr/lib/python3/dist-packages/apex/optimizers/fused_adam.py",
        "/usr/lib/python3/dist-packages/bitsandbytes/optim/adamw.py"}},
      {"package, in a step, loads a model",
       {"/usr/lib/python3/dist-packages/safetensors/torch.py"}},
      {"framework, in a step",
       {"/usr/lib/python3/dist-packages/torch/_tensor.py", "torch/cuda/memory.py",
        R"(C:\Users\me\venv\Lib\site-packages\torch\utils\data\dataloader.py)",
        "<eval_with_key>.12", "/tmp/torchinductor_me/ab/cabcdefghijklm.py"}},
      {"framework, in a step, loads a model",
       {"/usr/lib/python3/dist-packages/torch/serialization.py"}},
      {"framework, in a step, layer",
       {"/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        R"(C:\Users\me\venv\Lib\site-packages\torch\nn\modules\module.py)"}},
      {"framework, in a step, layer, loss",
       {"/usr/lib/python3/dist-packages/torch/nn/modules/loss.py"}},
      {"framework, in a step, layer, recurrent",
       {"/usr/lib/python3/dist-packages/torch/nn/modules/rnn.py"}},
      {"framework, in a step, optimizer", {"/usr/lib/python3/dist-packages/torch/optim/adam.py"}},
      // Called around whole loops.
      {"framework",
       {"/usr/lib/python3/dist-packages/torch/utils/_contextlib.py",
        "/usr/lib/python3/dist-packages/torch/_dynamo/eval_frame.py",
        "/usr/lib/python3/dist-packages/torch/autograd/grad_mode.py",
        "/usr/lib/python3/dist-packages/torch/autograd/profiler.py",
        "/usr/lib/python3/dist-packages/torch/amp/autocast_mode.py",
        "/usr/lib/python3/dist-packages/torch/profiler/profiler.py",
        "/usr/lib/python3/dist-packages/torch/utils/benchmark/utils/timer.py",
        "/usr/lib/python3/dist-packages/torch/distributed/run.py",
        "/usr/lib/python3/dist-packages/torch/distributed/launch.py",
        "/usr/lib/python3/dist-packages/torch/distributed/launcher/api.py",
        "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py",
        "/usr/lib/python3/dist-packages/torch/multiprocessing/spawn.py"}},
  };
  for (const auto& frames : each_frames) {
    for (const auto* file : frames.files) EXPECT_EQ(said_of(file, "run"), frames.said) << file;
  }
}

TEST(Sites, what_some_functions_do_is_told_by_their_names) {
  const std::string mine = "/home/me/train.py";
  const std::string torch = "/usr/lib/python3/dist-packages/torch/";
  for (const auto* name : {"binary_cross_entropy",
                           "binary_cross_entropy_with_logits",
                           "cosine_embedding_loss",
                           "cross_entropy",
                           "ctc_loss",
                           "gaussian_nll_loss",
                           "hinge_embedding_loss",
                           "huber_loss",
                           "kl_div",
                           "l1_loss",
                           "linear_cross_entropy",
                           "margin_ranking_loss",
                           "mse_loss",
                           "multi_margin_loss",
                           "multilabel_margin_loss",
                           "multilabel_soft_margin_loss",
                           "nll_loss",
                           "poisson_nll_loss",
                           "smooth_l1_loss",
                           "soft_margin_loss",
                           "triplet_margin_loss",
                           "triplet_margin_with_distance_loss"}) {
    EXPECT_EQ(said_of(torch + "nn/functional.py", name), "framework, in a step, loss") << name;
    EXPECT_EQ(said_of(mine, name), "the user's") << name;
  }
  EXPECT_EQ(
      said_of("/usr/lib/python3/dist-packages/torchvision/ops/focal_loss.py", "sigmoid_focal_loss"),
      "package, in a step, loss");
  // A trainer's, which calls the whole model.
  EXPECT_EQ(said_of("/usr/lib/python3/dist-packages/transformers/trainer.py", "compute_loss"),
            "package");

  EXPECT_EQ(said_of(mine, "forward"), "the user's, in a step, layer");
  EXPECT_EQ(said_of(mine, "forward_all"), "the user's");
  EXPECT_EQ(said_of(mine, "__init__"), "the user's, in a step");
  EXPECT_EQ(said_of(torch + "nn/modules/linear.py", "__init__"), "framework, in a step");
  for (const auto* name : {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}) {
    EXPECT_EQ(said_of(mine, name), "the user's, comprehension") << name;
  }
  EXPECT_EQ(said_of(mine, "<lambda>"), "the user's");
  for (const auto* name : {"load_state_dict", "_load_from_state_dict", "from_pretrained"}) {
    EXPECT_EQ(said_of(mine, name), "the user's, in a step, loads a model") << name;
  }
  EXPECT_EQ(said_of(torch + "nn/modules/module.py", "_apply"),
            "framework, in a step, layer, loads a model");
  EXPECT_EQ(said_of(mine, "_apply"), "the user's");

  // The base class wraps the steps of all optimizers, of which some are a program's own.
  EXPECT_EQ(said_of(torch + "optim/lbfgs.py", "step"),
            "framework, in a step, optimizer, calls closures");
  for (const auto& file : {torch + "optim/optimizer.py",
                           std::string(R"(C:\venv\Lib\site-packages\torch\optim\optimizer.py)")}) {
    EXPECT_EQ(said_of(file, "step"), "framework, in a step, optimizer") << file;
  }
}

TEST(Sites, where_the_sources_of_pytorch_lie_is_told_by_any_of_its_best_known_files) {
  for (const std::string folder : {"/home/me/src/pytorch/", "/home/me/deps.zip/", "C:\\src\\"}) {
    const auto in_torch = [&](const std::string& file) {
      return made::MadeFrame{fmt::format("{}torch/{}", folder, file), "run", 12};
    };
    const auto beside = [&](const made::MadeFrame& known) {
      return said_of({known, in_torch("random.py")});
    };
    for (const auto* file :
         {"nn/modules/module.py", "nn/functional.py", "optim/optimizer.py", "utils/_contextlib.py",
          "autograd/__init__.py", "_tensor.py", "_ops.py", "_compile.py"}) {
      EXPECT_EQ(beside(in_torch(file)), "framework, in a step") << file;
      EXPECT_EQ(beside({folder + "other/" + file, "run", 12}), "the user's") << file;
      EXPECT_EQ(said_of({in_torch(file), {folder + "train.py", "run", 12}}), "the user's") << file;
    }
    EXPECT_EQ(beside(in_torch("my_tools.py")), "the user's");
  }
}

TEST(Sites, frames_of_sources_and_objects_that_are_no_python_are_native) {
  for (const std::string file :
       {"", "??", "engine.cpp", "engine.cc", "engine.cxx", "engine.c", "kernel.cu", "kernel.cuh",
        "engine.h", "engine.hpp", "engine.inl", "/usr/lib/libmine.so", "/usr/lib/libc.so.6"}) {
    EXPECT_EQ(said_of(file, "train(Net&)"), "the user's, native") << file;
  }
  for (const std::uint64_t line : {std::uint64_t{0}, std::uint64_t{0x80000000}}) {
    EXPECT_EQ(said_of("train.py", "train(Net&)", line), "the user's, native") << line;
  }
  EXPECT_EQ(said_of("train.py", "train", 0x7fffffff), "the user's");
  EXPECT_EQ(said_of("/home/me/mine.so_tools.py", "train"), "the user's");
}

struct NativeFunctions {
  const char* said;
  std::vector<const char*> functions;
};

TEST(Sites, whose_a_native_function_is_and_what_it_does_is_told_by_its_name) {
  const NativeFunctions each_functions[] = {
      {"the user's, native",
       {"main", "forward(Net&)", "train(Net&)", "(anonymous namespace)::train(Net&)",
        "PyramidNet::train(at::Tensor)", "clone_batches(at::Tensor)", "object_detection(Net&)",
        "cuda_train(Net&)", "unwind_batches(at::Tensor)", "partial_update(at::Tensor)",
        "train(Net&, torch::optim::Adam&)",
        "train(Net&)::{lambda(at::Tensor)#1}::operator()() const",
        "keep(c10::ArrayRef<at::Tensor>, torch::nn::LSTM)",
        "replay(torch::autograd::Engine::Options)",
        // Names of templates' functions begin with what these return.
        "at::Tensor keep<float>(std::vector<at::Tensor, std::allocator<at::Tensor> >&)",
        "std::vector<at::Tensor, std::allocator<at::Tensor> > run<torch::optim::Adam>(Net&)",
        "void (anonymous namespace)::keep<at::Tensor>(at::Tensor)",
        "bool mine::operator< <float>(mine::Box const&)", "mine::Net::operator bool() const"}},
      {"the user's, native, in a step, layer",
       {"Net::forward(at::Tensor)", "(anonymous namespace)::Net::forward(at::Tensor)",
        "at::Tensor mine::Net::forward<float>(at::Tensor)"}},
      {"the user's, native, optimizer", {"mine::optim::Lion::step()"}},
      {"framework, native, in a step",
       {"",
        "??",
        "at::native::empty_cuda(c10::ArrayRef<long>)",
        "at::_ops::randn::call",
        "c10::cuda::CUDACachingAllocator::allocate(unsigned long)",
        "c10d::ProcessGroupNCCL::allreduce(std::vector<at::Tensor>&)",
        "caffe2::TypeMeta::make()",
        "torch::autograd::VariableType::(anonymous namespace)::mul_Scalar(at::Tensor const&)",
        "std::vector<at::Tensor, std::allocator<at::Tensor> >::~vector()",
        "__gnu_cxx::new_allocator<at::Tensor>::allocate(unsigned long)",
        "pybind11::cpp_function::dispatcher(_object*, _object*, _object*)",
        "cudnnConvolutionForward",
        "cudnn::cnn::run(cudnnContext*)",
        "cublasSgemm_v2",
        "cudaMalloc",
        "ncclAllReduce",
        "ncclGroupEndInternal()",
        "THPVariable_clear(THPVariable*)",
        "operator new(unsigned long)",
        "__libc_start_main",
        "__clone",
        "clone",
        "clone3",
        "_start",
        "start_thread",
        "pthread_condattr_setpshared",
        "PyEval_EvalCode",
        "_PyEval_EvalFrameDefault",
        "gomp_thread_start",
        "GOMP_parallel",
        "call_init",
        "_dl_catch_exception",
        "dlopen",
        "cfunction_call",
        "method_vectorcall_FASTCALL_KEYWORDS",
        "slot_tp_call",
        "type_call",
        "object_vacall",
        "run_mod",
        "run_eval_code_obj",
        "partial_vectorcall",
        "builtin_exec",
        "vectorcall_method",
        "property_descr_get",
        "func_get_annotation_dict",
        "bound_method_call",
        "unwind_entry",
        "execute_native_thread_routine",
        "void at::cuda::blas::gemm_internal_cublas<float, float>(char, char, long)",
        "bool at::cuda::blas::gemm_and_bias<float, float>(bool, bool, long)",
        "decltype(auto) c10::Dispatcher::call<at::Tensor, long>(long) const",
        "_object* torch::autograd::utils::wrap<at::Tensor>(at::Tensor)",
        "c10::impl::wrap_kernel_functor_unboxed_<at::Tensor (at::Tensor const&), long>::call(long)",
        "non-virtual thunk to torch::autograd::Node::apply(std::vector<at::Tensor>&&)"}},
      {"framework, native, in a step, layer",
       {"torch::nn::LinearImpl::forward(at::Tensor const&)",
        "at::Tensor torch::nn::SequentialImpl::forward<at::Tensor, at::Tensor&>(at::Tensor&)"}},
      {"framework, native, in a step, optimizer",
       {"torch::optim::Adam::step(std::function<at::Tensor ()>)"}},
      {"framework, native, in a step, recurrent",
       {"at::native::lstm(at::Tensor const&)", "at::_ops::gru_input::call(at::Tensor const&)"}},
      {"framework, native, in a step, backward pass",
       {"torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&"
        ")"}},
  };
  for (const auto& functions : each_functions) {
    for (const auto* function : functions.functions) {
      EXPECT_EQ(said_of("??", function, 0), functions.said) << function;
    }
  }
}

}  // namespace
}  // namespace leaklab
