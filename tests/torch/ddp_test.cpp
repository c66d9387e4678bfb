#include "leaklab/ddp.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "leaklab/error.h"
#include "leaklab/nets.h"

namespace leaklab {
namespace {

// A run on the CPU that only places a world.
class PlacedRun final : public Run {
 public:
  explicit PlacedRun(std::int64_t ranks) { setting_.place(false, ranks); }

 protected:
  bool do_fault() const override { return false; }
  const Setting& do_setting() const override { return setting_; }
  torch::Device do_device() const override { return torch::kCPU; }
  std::int64_t do_steps() const override { return 0; }
  void do_step(const std::function<void(Step)>&) override {}
  void do_gauge(std::string_view, std::int64_t, std::string_view, bool) override {}
  std::int64_t do_peak() const override { return 0; }
  void do_before_sampling(std::function<void()>) override {}

 private:
  Setting setting_;
};

constexpr std::int64_t batch = 4;
constexpr std::int64_t width = 3;

struct TwoRanks {
  explicit TwoRanks(std::int64_t ranks = 2, std::int64_t net_width = width)
      : run(ranks), world(run, [=](torch::Device device) {
          return mlp({net_width, net_width}, device);
        }) {}
  PlacedRun run;
  ddp::World world;
};

// The gradient of each weight is the sum of its inputs: batch * (index + 1), of each bias batch.
torch::Tensor loss_of(ddp::Rank& rank) {
  const auto inputs = rank.parameters().front().size(1);
  const auto value = static_cast<double>(rank.index() + 1);
  return rank.forward(torch::full({batch, inputs}, value)).sum();
}

void pass(ddp::Rank& rank) { loss_of(rank).backward(); }

// The gradients of all weights of a rank are alike; this is their value.
double weight_gradient(ddp::Rank& rank) {
  const auto gradient = rank.parameters().front().grad();
  EXPECT_EQ(gradient.min().item<double>(), gradient.max().item<double>());
  return gradient.max().item<double>();
}

std::vector<double> weight_gradients(ddp::World& world) {
  std::vector<double> values;
  for (std::size_t i = 0; i < world.size(); ++i) values.push_back(weight_gradient(world.rank(i)));
  return values;
}

constexpr std::int64_t gradient_bytes = 4 * (width * width + width);

TEST(Ddp, a_synchronised_pass_averages_the_gradients_of_all_ranks) {
  TwoRanks two;
  two.world.each(pass);
  EXPECT_EQ(weight_gradients(two.world), (std::vector{1.5 * batch, 1.5 * batch}));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& bias = two.world.rank(i).parameters().back();
    EXPECT_TRUE(bias.grad().eq(static_cast<double>(batch)).all().item<bool>());
  }
}

TEST(Ddp, three_ranks_average_too_and_one_keeps_its_own) {
  TwoRanks three(3);
  three.world.each(pass);
  EXPECT_EQ(weight_gradients(three.world), (std::vector{2.0 * batch, 2.0 * batch, 2.0 * batch}));
  TwoRanks one(1);
  one.world.each(pass);
  EXPECT_EQ(weight_gradients(one.world), (std::vector{1.0 * batch}));
}

TEST(Ddp, ranks_start_from_the_weights_of_rank_0) {
  PlacedRun run(2);
  double made = 0;
  ddp::World world(run, [&](torch::Device device) {
    auto net = mlp({width, width}, device);
    const torch::NoGradGuard guard;
    for (auto& parameter : net->parameters()) parameter.fill_(made);
    made += 1;
    return net;
  });
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(world.rank(i).parameters().front().eq(0).all().item<bool>());
  }
}

TEST(Ddp, every_synchronised_pass_reduces_the_bytes_of_all_gradients_once) {
  TwoRanks two;
  for (std::int64_t passes = 1; passes <= 4; ++passes) {
    two.world.each(pass);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(two.world.rank(i).reduced_bytes(), passes * gradient_bytes);
    }
  }
}

TEST(Ddp, gradients_stay_right_when_the_buckets_were_rebuilt_into_several) {
  // 4 MiB of weights: the first bucket takes 1 MiB, so the bias and the weights part.
  constexpr std::int64_t wide = 1024;
  TwoRanks two(2, wide);
  for (int i = 0; i < 3; ++i) {
    two.world.each([](ddp::Rank& rank) {
      rank.zero_grad();
      pass(rank);
    });
    EXPECT_EQ(weight_gradients(two.world), (std::vector{1.5 * batch, 1.5 * batch}));
  }
  EXPECT_EQ(two.world.rank(1).reduced_bytes(), 3 * 4 * (wide * wide + wide));
}

TEST(Ddp, no_sync_leaves_the_gradients_apart_and_reduces_nothing) {
  TwoRanks two;
  two.world.each([](ddp::Rank& rank) {
    const auto quiet = rank.no_sync();
    pass(rank);
    pass(rank);
  });
  EXPECT_EQ(weight_gradients(two.world), (std::vector{2.0 * batch, 4.0 * batch}));
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), 0);
}

TEST(Ddp, a_synchronised_pass_after_no_sync_averages_what_was_accumulated) {
  TwoRanks two;
  two.world.each([](ddp::Rank& rank) {
    {
      const auto quiet = rank.no_sync();
      pass(rank);
      pass(rank);
    }
    pass(rank);
  });
  EXPECT_EQ(weight_gradients(two.world), (std::vector{4.5 * batch, 4.5 * batch}));
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), gradient_bytes);
}

TEST(Ddp, it_is_the_forward_pass_that_must_lie_inside_no_sync) {
  TwoRanks two;
  two.world.each([](ddp::Rank& rank) {
    const auto loss = loss_of(rank);
    const auto quiet = rank.no_sync();
    loss.backward();
  });
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), gradient_bytes);
  two.world.each([](ddp::Rank& rank) {
    torch::Tensor loss;
    {
      const auto quiet = rank.no_sync();
      loss = loss_of(rank);
    }
    loss.backward();
  });
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), gradient_bytes);
}

TEST(Ddp, leaving_an_inner_no_sync_does_not_end_the_outer_one) {
  TwoRanks two;
  two.world.each([](ddp::Rank& rank) {
    {
      const auto outer = rank.no_sync();
      {
        const auto inner = rank.no_sync();
        pass(rank);
      }
      pass(rank);
    }
    EXPECT_EQ(rank.reduced_bytes(), 0);
    pass(rank);
  });
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), gradient_bytes);
}

TEST(Ddp, a_pass_without_gradients_prepares_nothing) {
  TwoRanks two;
  two.world.each([](ddp::Rank& rank) {
    const torch::NoGradGuard guard;
    EXPECT_FALSE(loss_of(rank).requires_grad());
  });
  two.world.each(pass);
  EXPECT_EQ(two.world.rank(0).reduced_bytes(), gradient_bytes);
}

TEST(Ddp, grad_mode_of_the_caller_holds_on_the_ranks) {
  TwoRanks two;
  const torch::NoGradGuard guard;
  two.world.each([](ddp::Rank&) { EXPECT_FALSE(torch::GradMode::is_enabled()); });
}

// Notes what the ranks do, in the order in which they do it.
std::vector<std::string> interleaving() {
  TwoRanks three(3);
  std::vector<std::string> order;
  three.world.each([&](ddp::Rank& rank) {
    const auto note = [&order, name = std::to_string(rank.index())](const std::string& what) {
      order.push_back(name + what);
    };
    const auto loss = loss_of(rank);
    note("f");
    loss.backward();
    note("b");
    pass(rank);
    note("B");
  });
  return order;
}

TEST(Ddp, ranks_take_turns_in_the_same_order_in_every_run) {
  // The last to arrive at a collective runs on, the others follow by number. Rank 2 goes on to its
  // next pass, whose buckets are rebuilt, which takes two broadcasts.
  const auto first = interleaving();
  EXPECT_EQ(first.size(), 9U);
  EXPECT_EQ(std::vector<std::string>(first.begin(), first.begin() + 6),
            (std::vector<std::string>{"0f", "1f", "2f", "2b", "0b", "1b"}));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(interleaving(), first);
}

struct Broken : std::runtime_error {
  using runtime_error::runtime_error;
};

TEST(Ddp, an_exception_in_one_rank_leaves_the_world_and_releases_the_others) {
  for (const std::size_t failing : {0U, 1U}) {
    TwoRanks two;
    std::size_t finished = 0;
    EXPECT_THROW(two.world.each([&](ddp::Rank& rank) {
      if (rank.index() == failing) throw Broken("rank");
      pass(rank);
      ++finished;
    }),
                 Broken)
        << "rank " << failing;
    EXPECT_EQ(finished, 0U);
  }
}

TEST(Ddp, an_exception_within_a_backward_pass_releases_the_others_too) {
  TwoRanks two;
  EXPECT_THROW(two.world.each([](ddp::Rank& rank) {
    auto output = loss_of(rank);
    if (rank.index() == 1) {
      output.register_hook([](const torch::Tensor&) -> torch::Tensor { throw Broken("hook"); });
    }
    output.backward();
  }),
               Broken);
}

TEST(Ddp, a_collective_that_a_rank_never_joins_is_an_error_and_no_hang) {
  TwoRanks two;
  try {
    two.world.each([](ddp::Rank& rank) {
      if (rank.index() == 0) pass(rank);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "rank 0 waits in a collective that another rank never joins");
  }
}

TEST(Ddp, a_rank_used_outside_each_is_an_error_and_no_hang) {
  TwoRanks two;
  try {
    pass(two.world.rank(0));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "a rank was used outside ddp::World::each");
  }
}

TEST(Ddp, a_net_with_buffers_is_refused) {
  struct WithBuffer : torch::nn::Module {
    WithBuffer() {
      weight = register_parameter("weight", torch::ones({1}));
      register_buffer("mean", torch::zeros({1}));
    }
    torch::Tensor forward(const torch::Tensor& input) { return input * weight; }
    torch::Tensor weight;
  };
  PlacedRun run(2);
  EXPECT_THROW(
      ddp::World(
          run, [](torch::Device) { return torch::nn::Sequential(std::make_shared<WithBuffer>()); }),
      InternalError);
}

TEST(Ddp, a_recording_sees_all_ranks_on_the_cpu_and_one_on_cuda) {
  Setting setting;
  setting.place(false, 2);
  EXPECT_EQ(ddp::recorded_ranks(setting), 2);
  setting.place(true, 8);
  EXPECT_EQ(ddp::recorded_ranks(setting), 1);
}

}  // namespace
}  // namespace leaklab
