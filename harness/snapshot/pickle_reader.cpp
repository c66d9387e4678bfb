#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "builder.h"
#include "read.h"

namespace leaklab {
namespace {

// Opcodes: CPython, Lib/pickletools.py.
enum class Op : unsigned char {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  bin_int = 'J',
  bin_int1 = 'K',
  bin_int2 = 'M',
  none = 'N',
  bin_unicode = 'X',
  append = 'a',
  dict = 'd',
  appends = 'e',
  bin_get = 'h',
  long_bin_get = 'j',
  list = 'l',
  bin_put = 'q',
  long_bin_put = 'r',
  set_item = 's',
  tuple = 't',
  set_items = 'u',
  empty_dict = '}',
  empty_list = ']',
  empty_tuple = ')',
  bin_float = 'G',
  proto = 0x80,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  new_true = 0x88,
  new_false = 0x89,
  long1 = 0x8a,
  long4 = 0x8b,
  short_bin_unicode = 0x8c,
  bin_unicode8 = 0x8d,
  memoize = 0x94,
  frame = 0x95,
};

// Why an opcode that a snapshot doesn't have is refused.
std::string refusal(unsigned char op) {
  const auto runs_code = [](const char* name) {
    return fmt::format(
        "the opcode {} could run code, so it is refused; a snapshot has none: don't "
        "open this file with Python",
        name);
  };
  const auto other = [](const char* name) {
    return fmt::format(
        "the opcode {}, which no snapshot has; give the file that "
        "torch.cuda.memory._dump_snapshot wrote",
        name);
  };
  switch (op) {
    case 'c':
      return runs_code("GLOBAL");
    case 0x93:
      return runs_code("STACK_GLOBAL");
    case 'R':
      return runs_code("REDUCE");
    case 'b':
      return runs_code("BUILD");
    case 0x81:
      return runs_code("NEWOBJ");
    case 0x92:
      return runs_code("NEWOBJ_EX");
    case 'i':
      return runs_code("INST");
    case 'o':
      return runs_code("OBJ");
    case 0x82:
      return runs_code("EXT1");
    case 0x83:
      return runs_code("EXT2");
    case 0x84:
      return runs_code("EXT4");
    case 'P':
      return runs_code("PERSID");
    case 'Q':
      return runs_code("BINPERSID");
    case 0x97:
      return other("NEXT_BUFFER");
    case 0x98:
      return other("READONLY_BUFFER");
    case '2':
      return other("DUP");
    case 'F':
      return other("FLOAT");
    case 'I':
      return other("INT");
    case 'L':
      return other("LONG");
    case 'S':
      return other("STRING");
    case 'T':
      return other("BINSTRING");
    case 'U':
      return other("SHORT_BINSTRING");
    case 'V':
      return other("UNICODE");
    case 'B':
      return other("BINBYTES");
    case 'C':
      return other("SHORT_BINBYTES");
    case 0x8e:
      return other("BINBYTES8");
    case 0x96:
      return other("BYTEARRAY8");
    case 'g':
      return other("GET");
    case 'p':
      return other("PUT");
    case 0x8f:
      return other("EMPTY_SET");
    case 0x90:
      return other("ADDITEMS");
    case 0x91:
      return other("FROZENSET");
    default:
      return fmt::format("0x{:02x} is no opcode; the file is corrupted", op);
  }
}

template <typename T>
T little_endian(const unsigned char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Two's complement of `size` bytes, as far as 64 bits hold it, with or without sign.
void push_long(Builder& builder, Source& source, std::uint64_t size) {
  if (size <= 8) {
    const std::uint64_t bits = source.little_endian(size, "an integer");
    const std::uint64_t unused = size == 0 ? 0 : 64 - 8 * size;
    return builder.push_integer(static_cast<std::int64_t>(bits << unused) >> unused);
  }
  const unsigned char* bytes = source.take(size, "an integer");
  if (size == 9 && bytes[8] == 0) {
    return builder.push_unsigned(little_endian<std::uint64_t>(bytes));
  }
  throw Refusal(fmt::format("an integer of {} bytes; the file is corrupted", size));
}

void push_string(Builder& builder, Source& source, std::uint64_t size) {
  builder.push_string({reinterpret_cast<const char*>(source.take(size, "a string")),
                       static_cast<std::size_t>(size)});
}

}  // namespace

Snapshot read_pickle(Source& source, std::uint64_t& at) {
  const auto argument = [&](auto type) {
    return little_endian<decltype(type)>(source.take(sizeof type, "the argument of an opcode"));
  };
  Builder builder(source);
  for (;;) {
    at = source.offset();
    const unsigned char op = *source.take(1, "the opcode STOP");
    switch (static_cast<Op>(op)) {
      case Op::bin_get:
        builder.get(argument(std::uint8_t{}));
        break;
      case Op::long_bin_get:
        builder.get(argument(std::uint32_t{}));
        break;
      case Op::bin_int1:
        builder.push_integer(argument(std::uint8_t{}));
        break;
      case Op::bin_int2:
        builder.push_integer(argument(std::uint16_t{}));
        break;
      case Op::bin_int:
        builder.push_integer(argument(std::int32_t{}));
        break;
      case Op::long1:
        push_long(builder, source, argument(std::uint8_t{}));
        break;
      case Op::long4: {
        const auto size = argument(std::int32_t{});
        if (size < 0) throw Refusal("an integer of negative length; the file is corrupted");
        push_long(builder, source, static_cast<std::uint64_t>(size));
        break;
      }
      case Op::memoize:
        builder.memoize();
        break;
      case Op::bin_put:
        builder.put(argument(std::uint8_t{}));
        break;
      case Op::long_bin_put:
        builder.put(argument(std::uint32_t{}));
        break;
      case Op::short_bin_unicode:
        push_string(builder, source, argument(std::uint8_t{}));
        break;
      case Op::bin_unicode:
        push_string(builder, source, argument(std::uint32_t{}));
        break;
      case Op::bin_unicode8:
        push_string(builder, source, argument(std::uint64_t{}));
        break;
      case Op::empty_dict:
        builder.push_empty_dict();
        break;
      case Op::empty_list:
      case Op::empty_tuple:
        builder.push_empty_list();
        break;
      case Op::mark:
        builder.mark();
        break;
      case Op::set_items:
        builder.set_items();
        break;
      case Op::set_item:
        builder.set_item();
        break;
      case Op::appends:
        builder.appends();
        break;
      case Op::append:
        builder.append();
        break;
      case Op::list:
        builder.list();
        break;
      case Op::dict:
        builder.dict();
        break;
      case Op::tuple:
        builder.tuple();
        break;
      case Op::tuple1:
        builder.tuple(1);
        break;
      case Op::tuple2:
        builder.tuple(2);
        break;
      case Op::tuple3:
        builder.tuple(3);
        break;
      case Op::none:
        builder.push_none();
        break;
      case Op::new_true:
        builder.push_boolean(true);
        break;
      case Op::new_false:
        builder.push_boolean(false);
        break;
      case Op::bin_float:
        builder.push_real(std::bit_cast<double>(__builtin_bswap64(argument(std::uint64_t{}))));
        break;
      case Op::pop:
        builder.pop();
        break;
      case Op::pop_mark:
        builder.pop_mark();
        break;
      case Op::proto: {
        const auto version = argument(std::uint8_t{});
        if (version < 2 || version > 5) {
          throw Refusal(
              fmt::format("a pickle of protocol {}, and 2 to 5 can be read; write it "
                          "again with pickle.dump(snapshot, file, protocol=4)",
                          version));
        }
        break;
      }
      case Op::frame:
        // How much belongs together in a stream says nothing to a reader of files.
        argument(std::uint64_t{});
        break;
      case Op::stop: {
        Snapshot snapshot = builder.finish();
        at = source.offset();
        if (source.peek() >= 0) {
          throw Refusal("goes on after the end of the snapshot; the file is corrupted");
        }
        return snapshot;
      }
      default:
        throw Refusal(refusal(op));
    }
  }
}

}  // namespace leaklab
