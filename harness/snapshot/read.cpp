#include "read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <system_error>

#include "leaklab/error.h"
#include "possible.h"

namespace leaklab {
namespace {

[[noreturn]] void refuse_start(int first) {
  constexpr const char* wanted = "give the file that torch.cuda.memory._dump_snapshot wrote";
  if (first < 0) throw Refusal("empty; record the snapshot again");
  if (first == 'P')
    throw Refusal(fmt::format("looks like a zip archive of torch.save; {}", wanted));
  if (first == 0x1f || first == 0xfd) {
    throw Refusal("looks compressed; give the file as it was before");
  }
  throw Refusal(fmt::format("neither a pickle of protocol 2 to 5 nor JSON; {}", wanted));
}

Snapshot read_any(Source& source, const std::string& origin) {
  try {
    const int first = source.peek();
    if (first == 0x80) return read_pickle(source);
    // A file that an editor has saved may begin with a mark of its encoding.
    if (first == '{' || first == '[' || first == ' ' || first == '\n' || first == '\t' ||
        first == '\r' || first == 0xef) {
      return read_json(source);
    }
    refuse_start(first);
  } catch (const Refusal& refusal) {
    throw UsageError(fmt::format("{}: {} (byte {})", origin, refusal.what(), source.offset()));
  }
}

Snapshot read(Source& source, const std::string& origin) {
  auto snapshot = read_any(source, origin);
  refuse_impossible(snapshot, origin);
  return snapshot;
}

}  // namespace

Snapshot read_snapshot(const std::filesystem::path& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  const bool opened = file.is_open() && ::fstat(file.get(), &status) == 0;
  if (opened && S_ISDIR(status.st_mode)) errno = EISDIR;
  if (!opened || S_ISDIR(status.st_mode)) {
    throw UsageError(fmt::format("can't read {}: {}; check the path", path.string(),
                                 std::generic_category().message(errno)));
  }
  const bool sized = S_ISREG(status.st_mode);
  Source source(std::move(file), sized ? static_cast<std::uint64_t>(status.st_size) : 0);
  return read(source, path.string());
}

Snapshot read_snapshot(std::string_view bytes, const std::string& origin) {
  Source source(bytes);
  return read(source, origin);
}

}  // namespace leaklab
