#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}

/// Every text of a document comes back from append_quoted.
class Quoted final : public ckpt::json::Handler {
 public:
  ckpt::Result<> on(const ckpt::json::Event& event) override {
    using Kind = ckpt::json::Event::Kind;
    require(event.offset <= document_bytes_);
    if (event.kind == Kind::text || event.kind == Kind::key) {
      std::string quoted;
      ckpt::json::append_quoted(quoted, event.text);
      const auto back = ckpt::json::parse(quoted);
      require(back.has_value() && back->text() != nullptr && *back->text() == event.text);
    }
    return {};
  }
  explicit Quoted(std::size_t document_bytes) : document_bytes_(document_bytes) {}

 private:
  std::size_t document_bytes_;
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view document(reinterpret_cast<const char*>(data), size);
  Quoted quoted(size);
  const bool streamed = ckpt::json::parse(document, quoted).has_value();
  require(streamed == ckpt::json::parse(document).has_value());
  return 0;
}
