#include "leaklab/file.h"
#include "leaklab/signature.h"
#include <nlohmann/json.hpp>
namespace leaklab {
Signature classify(std::span<const std::int64_t>, std::span<const std::int64_t>, const SignatureOptions&) { return {}; }
std::int64_t Signature::rate() const { return 0; }
std::string_view to_string(Shape) { return "flat"; }
Shape shape_from_string(std::string_view) { return Shape::flat; }
nlohmann::json to_json(const Signature&) { return {{"kind","flat"},{"growth",0},{"period",1},{"onset",-1},{"rate",0}}; }
std::string to_text(const nlohmann::json& d) { return d.dump(); }
std::string read_file(const std::filesystem::path&) { return ""; }
void write_file(const std::filesystem::path&, const std::string&) {}
}
