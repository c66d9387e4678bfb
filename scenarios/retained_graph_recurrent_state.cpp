// Recurrent state that goes from step to step without detach() keeps the whole sequence so far.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_recurrent_state, .taxonomy = "L03",
    .summary = "the state of an LSTM is carried into the next step with its history",
    .reports = {"pytorch/pytorch#2198", "pytorch/pytorch#2769"},
    .fix = "detach the state at the start of every step",
    .params = {{"batch", 8, 1, 64, "sequences in a step"},
               {"width", 64, 8, 128, "of input and state"},
               {"length", 4, 1, 8, "of the sequences in a step"}},
    .expect = [](const Setting& at) {
      // A cell saves its gates, its new state and the state's tanh (CPU), or both halves of its
      // gates before and the gates after the activation, and its new state (CUDA).
      const auto state = 4 * at["batch"] * at["width"];
      const auto gates = at.on_cuda() ? 3 : 1;
      const auto states = at.on_cuda() ? 2 : 3;
      return Growth()
          .tensor(state)
          .tensor(4 * state, gates * at["length"])
          .tensor(state, states * at["length"])
          .nodes((at.on_cuda() ? 5 : 15) * at["length"]);
    }) {
  const auto width = run.param("width");
  torch::nn::LSTMCell cell(width, width);
  fill_deterministically(*cell);
  cell->to(run.device());
  torch::optim::SGD optimizer(cell->parameters(), 1e-3);
  auto hidden = torch::zeros({run.param("batch"), width}, run.device());
  auto memory = hidden;
  run.step([&](Step) {
    if (!run.fault()) {
      hidden = hidden.detach();
      memory = memory.detach();
    }
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    for (std::int64_t i = 0; i < run.param("length"); ++i) {
      std::tie(hidden, memory) = cell->forward(input, std::make_tuple(hidden, memory));
    }
    optimizer.zero_grad();
    // What one is told to add when the second step fails for want of the first one's graph.
    mean_square(hidden).backward({}, /*retain_graph=*/true);
    optimizer.step();
  });
}
