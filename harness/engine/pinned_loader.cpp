#include "leaklab/pinned_loader.h"

#include <fmt/format.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/samplers/sequential.h>

#include <atomic>
#include <bit>
#include <optional>

#include "leaklab/error.h"

namespace leaklab {
namespace {

// Each worker has a copy of the dataset; the count of batches that were read is theirs together.
class MadeDataset final : public torch::data::datasets::BatchDataset<MadeDataset, torch::Tensor> {
 public:
  MadeDataset(const PinnedLoader::Options& options, std::int64_t batches,
              std::atomic<std::int64_t>& read)
      : rows_(options.rows), batches_(batches), length_(options.length), read_(&read) {}

  torch::Tensor get_batch(c10::ArrayRef<std::size_t> samples) override {
    const auto batch = static_cast<std::int64_t>(samples.front()) / rows_;
    const auto length = length_(batch);
    auto values = torch::empty({rows_, length}, torch::kFloat32);
    // By hand: an operator would start OpenMP's threads for each worker.
    auto* value = values.data_ptr<float>();
    for (const auto sample : samples) {
      for (std::int64_t i = 0; i < length; ++i) {
        *value++ = 0.01F * static_cast<float>((static_cast<std::int64_t>(sample) + i) % 97);
      }
    }
    ++*read_;
    read_->notify_all();
    return values;
  }

  std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(batches_ * rows_);
  }

 private:
  std::int64_t rows_;
  std::int64_t batches_;
  std::function<std::int64_t(std::int64_t)> length_;
  std::atomic<std::int64_t>* read_;
};

using Loader =
    torch::data::StatelessDataLoader<MadeDataset, torch::data::samplers::SequentialSampler>;

}  // namespace

class PinnedLoader::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)), ahead_(2 * options_.workers), loader_(make_loader()) {
    iterator_.emplace(loader_->begin());
  }

  torch::Tensor next() {
    if (taken_ == options_.batches) {
      throw InternalError(fmt::format("a loader of {} batches was asked for more", taken_));
    }
    if (taken_ > 0) ++*iterator_;
    ++taken_;
    const torch::Tensor batch = std::move(**iterator_);
    return options_.pin_memory ? batch.pin_memory() : batch;
  }

  void wait_for_workers() {
    // The loader asks for one more batch whenever one was taken.
    const auto asked = ahead_ + taken_;
    for (auto read = read_.load(); read < asked; read = read_.load()) read_.wait(read);
  }

 private:
  std::unique_ptr<Loader> make_loader() {
    const auto options = torch::data::DataLoaderOptions(static_cast<std::size_t>(options_.rows))
                             .workers(static_cast<std::size_t>(options_.workers))
                             .max_jobs(static_cast<std::size_t>(ahead_))
                             .enforce_ordering(true);
    // As many batches more as are read ahead, so that the queue stays full to the end.
    MadeDataset dataset(options_, options_.batches + ahead_, read_);
    return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        std::move(dataset), options);
  }

  Options options_;
  std::int64_t ahead_;
  std::int64_t taken_ = 0;
  std::atomic<std::int64_t> read_{0};
  std::unique_ptr<Loader> loader_;
  std::optional<torch::data::Iterator<torch::Tensor>> iterator_;
};

PinnedLoader::PinnedLoader(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
PinnedLoader::~PinnedLoader() = default;
torch::Tensor PinnedLoader::next() { return impl_->next(); }
void PinnedLoader::wait_for_workers() { impl_->wait_for_workers(); }

std::int64_t pinned_block(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace leaklab
