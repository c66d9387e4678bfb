#include "read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cctype>
#include <string_view>
#include <system_error>

#include "leaklab/error.h"
#include "possible.h"

namespace leaklab {
namespace {

constexpr std::string_view wanted = "give the file that torch.cuda.memory._dump_snapshot wrote";

constexpr std::string_view standard_input = "/dev/stdin";

// What is taken for a snapshot by mistake, and could be JSON by its first byte.
void refuse_web_page(std::string_view text) {
  const auto first = text.find_first_not_of(" \n\t\r");
  if (first != std::string_view::npos && text[first] == '<') {
    throw Refusal(fmt::format(
        "looks like a web page, such as a viewer's or of a download that failed; {}", wanted));
  }
}

[[noreturn]] void refuse_start(std::string_view text) {
  if (text.empty()) {
    throw Refusal("empty; see that its disk has room, and dump the snapshot again");
  }
  if (text.size() >= 262 && text.substr(257, 5) == "ustar") {
    throw Refusal(fmt::format("looks like a tar archive; unpack it, and {}", wanted));
  }
  if (text.starts_with("PK")) {
    throw Refusal(fmt::format("looks like a zip archive of torch.save; {}", wanted));
  }
  if (text.front() == '\x1f' || text.front() == '\xfd') {
    throw Refusal("looks compressed; give the file as it was before");
  }
  const bool text_file = std::isalnum(static_cast<unsigned char>(text.front())) != 0 ||
                         text.front() == '"' || text.front() == '#';
  throw Refusal(fmt::format(
      "neither a pickle of protocol 2 to 5 nor JSON; {}{}", wanted,
      text_file ? ", or a CSV of bytes by step to `leaklab import --from-series`" : ""));
}

Snapshot read_any(Source& source, const std::string& origin) {
  try {
    const int first = source.peek();
    if (first == 0x80) return read_pickle(source);
    const auto [next, end] = source.window();
    const std::string_view start(reinterpret_cast<const char*>(next),
                                 static_cast<std::size_t>(end - next));
    if (start.empty() && origin == standard_input) {
      throw Refusal(
          "empty: nothing was piped in; see that the command before the pipe writes a snapshot");
    }
    refuse_web_page(start);
    // A file that an editor has saved may begin with a mark of its encoding.
    if (first == '{' || first == '[' || first == ' ' || first == '\n' || first == '\t' ||
        first == '\r' || first == 0xef) {
      return read_json(source);
    }
    refuse_start(start);
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
