#include <fmt/format.h>

#include <array>
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

struct Refused {
  unsigned char op;
  const char* name;
};
constexpr std::array<Refused, 13> could_run_code = {{{'c', "GLOBAL"},
                                                     {0x93, "STACK_GLOBAL"},
                                                     {'R', "REDUCE"},
                                                     {'b', "BUILD"},
                                                     {0x81, "NEWOBJ"},
                                                     {0x92, "NEWOBJ_EX"},
                                                     {'i', "INST"},
                                                     {'o', "OBJ"},
                                                     {0x82, "EXT1"},
                                                     {0x83, "EXT2"},
                                                     {0x84, "EXT4"},
                                                     {'P', "PERSID"},
                                                     {'Q', "BINPERSID"}}};
constexpr std::array<Refused, 19> in_no_snapshot = {{{0x97, "NEXT_BUFFER"},
                                                     {0x98, "READONLY_BUFFER"},
                                                     {'2', "DUP"},
                                                     {'F', "FLOAT"},
                                                     {'I', "INT"},
                                                     {'L', "LONG"},
                                                     {'S', "STRING"},
                                                     {'T', "BINSTRING"},
                                                     {'U', "SHORT_BINSTRING"},
                                                     {'V', "UNICODE"},
                                                     {'B', "BINBYTES"},
                                                     {'C', "SHORT_BINBYTES"},
                                                     {0x8e, "BINBYTES8"},
                                                     {0x96, "BYTEARRAY8"},
                                                     {'g', "GET"},
                                                     {'p', "PUT"},
                                                     {0x8f, "EMPTY_SET"},
                                                     {0x90, "ADDITEMS"},
                                                     {0x91, "FROZENSET"}}};

[[noreturn]] void refuse(unsigned char op) {
  for (const Refused& refused : could_run_code) {
    if (refused.op != op) continue;
    throw Refusal(
        fmt::format("the opcode {} could run code, so it is refused; a snapshot has none: don't "
                    "open this file with Python",
                    refused.name));
  }
  for (const Refused& refused : in_no_snapshot) {
    if (refused.op != op) continue;
    throw Refusal(
        fmt::format("the opcode {}, which no snapshot has; give the file that "
                    "torch.cuda.memory._dump_snapshot wrote",
                    refused.name));
  }
  throw Refusal(fmt::format("0x{:02x} is no opcode; the file is corrupted", op));
}

// An integer of `size` bytes, as far as 64 bits hold it, with or without sign.
[[gnu::always_inline]] inline void push_long(Builder& builder, Cursor& cursor, std::uint64_t size) {
  if (size - 1 < 8) [[likely]]
    return builder.push_integer(cursor.integer(size, "an integer"));
  if (size == 0) return builder.push_integer(0);
  const unsigned char* bytes = cursor.take(size, "an integer");
  if (size != 9 || bytes[8] != 0) {
    throw Refusal(fmt::format("an integer of {} bytes; the file is corrupted", size));
  }
  std::uint64_t value;
  std::memcpy(&value, bytes, 8);
  builder.push_unsigned(value);
}

}  // namespace

Snapshot read_pickle(Source& source) {
  Cursor cursor(source);
  Builder builder(source);
  const auto argument = [&](auto type) __attribute__((always_inline)) {
    return cursor.number<decltype(type)>("the argument of an opcode");
  };
  const auto push_text = [&](std::uint64_t size) __attribute__((always_inline)) {
    const unsigned char* bytes = cursor.take(size, "a string");
    builder.push_string({reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)});
  };
  for (;;) {
    cursor.settle();
    const unsigned char op = *cursor.take(1, "the opcode STOP");
    // More than half of all operations are this one.
    if (static_cast<Op>(op) == Op::bin_get) {
      builder.get_short(argument(std::uint8_t{}));
      continue;
    }
    switch (static_cast<Op>(op)) {
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
        push_long(builder, cursor, argument(std::uint8_t{}));
        break;
      case Op::long4: {
        const auto size = argument(std::int32_t{});
        if (size < 0) throw Refusal("an integer of negative length; the file is corrupted");
        push_long(builder, cursor, static_cast<std::uint64_t>(size));
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
        push_text(argument(std::uint8_t{}));
        break;
      case Op::bin_unicode:
        push_text(argument(std::uint32_t{}));
        break;
      case Op::bin_unicode8:
        push_text(argument(std::uint64_t{}));
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
        cursor.settle();
        if (source.peek() >= 0) {
          throw Refusal("goes on after the end of the snapshot; the file is corrupted");
        }
        return snapshot;
      }
      default:
        refuse(op);
    }
  }
}

}  // namespace leaklab
