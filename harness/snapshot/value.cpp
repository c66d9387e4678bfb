#include "value.h"

namespace leaklab {

std::string_view what(Tag tag) {
  switch (tag) {
    case Tag::none:
      return "None";
    case Tag::boolean:
      return "boolean";
    case Tag::integer:
    case Tag::wide_integer:
    case Tag::wide_unsigned:
      return "integer";
    case Tag::real:
      return "float";
    case Tag::string:
      return "string";
    case Tag::pool:
      return "tuple";
    case Tag::empty_list:
    case Tag::events:
    case Tag::blocks:
    case Tag::entries:
    case Tag::segments:
    case Tag::annotations:
    case Tag::traces:
      return "list";
    case Tag::stack:
    case Tag::open_stack:
      return "list of frames";
    case Tag::empty_dict:
    case Tag::items:
    case Tag::top:
      return "dict";
    case Tag::frame:
      return "frame";
    case Tag::event:
      return "trace entry";
    case Tag::block:
      return "block";
    case Tag::entry:
      return "history entry";
    case Tag::segment:
      return "segment";
    case Tag::annotation:
      return "annotation";
    default:
      return "value of another shape";
  }
}

}  // namespace leaklab
