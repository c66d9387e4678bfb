#include "leaklab/file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "fd.h"
#include "leaklab/error.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string reason(int error) { return std::generic_category().message(error); }

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free some space or choose another disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder that you may write to";
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
      return "check the path";
    default:
      return "try another folder";
  }
}

// Whether another path would do: the call named one where this user can write no file. Else the
// machine fails, as with a full disk.
bool is_of_the_path(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void fail_to_write(const fs::path& path, int error) {
  const auto told =
      fmt::format("can't write {}: {}; {}", path.string(), reason(error), advice(error));
  if (is_of_the_path(error)) throw UsageError(told);
  throw InternalError(told);
}

// A file beside the one to write, gone again unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const fs::path& folder) {
    for (int attempt = 0; !fd_.is_open(); ++attempt) {
      path_ = folder / fmt::format(".leaklab-{}-{}.tmp", ::getpid(), attempt);
      fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (!fd_.is_open() && errno != EEXIST) return;
    }
  }
  ~Temporary() {
    if (fd_.is_open()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  bool is_open() const { return fd_.is_open(); }
  // False with errno, and so the next ones.
  bool write(std::string_view text) { return write_all(fd_.get(), text); }
  bool sync() { return ::fsync(fd_.get()) == 0; }
  bool rename(const fs::path& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) return false;
    fd_.close();
    return true;
  }

 private:
  fs::path path_;
  Fd fd_;
};

// The text of `value` in one line.
std::string line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_row(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [](const json& element) { return element.is_number(); });
}

bool is_table(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& element) {
           return element.is_number() || is_row(element);
         });
}

// A number, or a row of them: "[512, 40]".
std::string cell(const json& value) {
  if (!value.is_array()) return line(value);
  std::string text;
  for (const json& number : value) text += (text.empty() ? "" : ", ") + line(number);
  return "[" + text + "]";
}

bool is_leaf_object(const json& value) {
  return value.is_object() && std::none_of(value.begin(), value.end(), [](const json& element) {
           return element.is_structured();
         });
}

// {"kind": "flat", "rate": 0}
std::string leaf_object(const json& value) {
  std::string text;
  for (const auto& [key, element] : value.items()) {
    text += (text.empty() ? "" : ", ") + line(key) + ": " + line(element);
  }
  return "{" + text + "}";
}

class Printer {
 public:
  std::string print(const json& document) {
    add(document);
    return std::move(text_) + "\n";
  }

 private:
  static constexpr std::size_t width = 100;

  void add(const json& value) {
    if (!value.is_structured() || value.empty()) {
      text_ += line(value);
    } else if (is_table(value)) {
      add_table(value);
    } else if (indent_ > 0 && is_leaf_object(value) && fits(leaf_object(value))) {
      text_ += leaf_object(value);
    } else {
      add_block(value);
    }
  }

  // With the comma that may follow.
  bool fits(const std::string& text) const { return column() + text.size() + 1 <= width; }

  void add_block(const json& value) {
    text_ += value.is_object() ? '{' : '[';
    indent_ += 2;
    const char* separator = "";
    for (const auto& [key, element] : value.items()) {
      text_ += separator;
      break_line();
      if (value.is_object()) text_ += line(key) + ": ";
      add(element);
      separator = ",";
    }
    indent_ -= 2;
    break_line();
    text_ += value.is_object() ? '}' : ']';
  }

  // In one line where it fits with the comma that may follow; else as many cells a line as fit.
  void add_table(const json& table) {
    std::vector<std::string> cells;
    std::size_t length = 1 + 2 * table.size();
    for (const json& value : table) {
      cells.push_back(cell(value));
      length += cells.back().size();
    }
    const bool fits = column() + length <= width;
    text_ += '[';
    indent_ += 2;
    if (!fits) break_line();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) {
        text_ += ',';
        if (fits || column() + 1 + cells[i].size() + 1 <= width) {
          text_ += ' ';
        } else {
          break_line();
        }
      }
      text_ += cells[i];
    }
    indent_ -= 2;
    if (!fits) break_line();
    text_ += ']';
  }

  std::size_t column() const { return text_.size() - line_start_; }

  void break_line() {
    text_ += '\n';
    line_start_ = text_.size();
    text_.append(indent_, ' ');
  }

  std::string text_;
  std::size_t line_start_ = 0;
  std::size_t indent_ = 0;
};

}  // namespace

namespace {

bool is_of_a_process(const fs::path& path) { return path.native().starts_with("/proc/"); }

// The end of a chain of links, so that a link stays one. What /dev/stdout leads to in /proc is left
// as it is: the file behind it is not ours to replace.
fs::path behind_links(fs::path path) {
  constexpr int longest = 40;  // as the kernel
  std::error_code error;
  for (int i = 0; i < longest && !is_of_a_process(path); ++i) {
    const auto target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

}  // namespace

struct FileWriter::Files {
  fs::path given;   // as the caller named it
  fs::path path;    // behind its links
  fs::path folder;  // of that
  Fd device;        // in place of the temporary file
  std::unique_ptr<Temporary> temporary;
};

FileWriter::FileWriter(const fs::path& path) : files_(std::make_unique<Files>()) {
  auto& files = *files_;
  files.given = path;
  files.path = behind_links(path);
  files.folder = files.path.has_parent_path() ? files.path.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(files.folder, error);
  if (error) fail_to_write(path, error.value());

  const fs::file_status before = fs::status(files.path, error);
  if (fs::exists(before) && (is_of_a_process(files.path) || !fs::is_regular_file(before))) {
    // A rename would put a file in the place of /dev/null or of a pipe.
    files.device = Fd(::open(files.path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!files.device.is_open()) fail_to_write(path, errno);
    return;
  }
  files.temporary = std::make_unique<Temporary>(files.folder);
  if (!files.temporary->is_open()) fail_to_write(path, errno);
}

FileWriter::~FileWriter() = default;

void FileWriter::write(std::string_view text) {
  const bool written =
      files_->temporary ? files_->temporary->write(text) : write_all(files_->device.get(), text);
  if (!written) fail_to_write(files_->given, errno);
}

void FileWriter::commit() {
  if (!files_->temporary) return;
  if (!files_->temporary->sync() || !files_->temporary->rename(files_->path)) {
    fail_to_write(files_->given, errno);
  }
  // The file is whole by now, so a folder that can't be synced is no failure.
  const Fd folder(::open(files_->folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) ::fsync(folder.get());
}

void write_file(const fs::path& path, const std::string& text) {
  FileWriter writer(path);
  writer.write(text);
  writer.commit();
}

std::string read_file(const fs::path& path) {
  std::string text;
  std::vector<char> buffer(64 * 1024);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ssize_t got = -1;
  if (file.is_open()) {
    while ((got = read_some(file.get(), buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  if (got < 0) {
    throw UsageError(
        fmt::format("can't read {}: {}; check the path", path.string(), reason(errno)));
  }
  return text;
}

std::string to_text(const json& document) { return Printer().print(document); }

}  // namespace leaklab
