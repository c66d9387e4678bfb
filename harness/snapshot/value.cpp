#include "value.h"

namespace leaklab {

std::string_view what(Tag tag) {
  switch (tag) {
    case Tag::none:
      return "None";
    case Tag::boolean:
      return "a boolean";
    case Tag::integer:
    case Tag::wide_integer:
    case Tag::wide_unsigned:
      return "an integer";
    case Tag::real:
      return "a float";
    case Tag::string:
      return "a string";
    case Tag::pool:
      return "a tuple";
    case Tag::empty_list:
    case Tag::events:
    case Tag::blocks:
    case Tag::entries:
    case Tag::segments:
    case Tag::annotations:
    case Tag::traces:
      return "a list";
    case Tag::stack:
    case Tag::open_stack:
      return "a list of frames";
    case Tag::empty_dict:
    case Tag::items:
    case Tag::top:
      return "a dict";
    case Tag::frame:
      return "a frame";
    case Tag::event:
      return "a trace entry";
    case Tag::block:
      return "a block";
    case Tag::entry:
      return "a history entry";
    case Tag::segment:
      return "a segment";
    case Tag::annotation:
      return "an annotation";
    default:
      return "a list or dict of another shape";
  }
}

}  // namespace leaklab
