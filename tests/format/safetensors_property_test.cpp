#include <gtest/gtest.h>
// rapidcheck's GoogleTest extra needs gtest first.
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/model/model.hpp"

namespace ckpt::safetensors {
namespace {

struct Spec {
  std::string name;
  Dtype dtype;
  Shape shape;
};

/// Text of any code points that UTF-8 can hold, controls and quotes among them.
rc::Gen<std::string> any_text() {
  return rc::gen::map(rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 0x11'0000)),
                      [](const std::vector<std::uint32_t>& points) {
                        std::string out;
                        for (std::uint32_t p : points) {
                          if (p >= 0xd800 && p < 0xe000) p = 'x';
                          if (p % 3 == 0) p %= 0x80;  // plain text more often than not
                          const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
                          if (p < 0x80) {
                            put(p);
                          } else if (p < 0x800) {
                            put(0xc0 | p >> 6), put(0x80 | (p & 0x3f));
                          } else if (p < 0x1'0000) {
                            put(0xe0 | p >> 12), put(0x80 | (p >> 6 & 0x3f)), put(0x80 | (p & 0x3f));
                          } else {
                            put(0xf0 | p >> 18), put(0x80 | (p >> 12 & 0x3f)), put(0x80 | (p >> 6 & 0x3f)),
                                put(0x80 | (p & 0x3f));
                          }
                        }
                        return out;
                      });
}

std::vector<Spec> any_specs() {
  const auto names = *rc::gen::unique<std::vector<std::string>>(any_text()).as("names");
  std::vector<Spec> specs;
  for (const std::string& name : names) {
    if (name == "__metadata__") continue;
    const auto dtype = static_cast<Dtype>(*rc::gen::inRange(0, kDtypeCount));
    Shape shape = *rc::gen::resize(4, rc::gen::container<Shape>(rc::gen::inRange<std::uint64_t>(0, 6)));
    if (is_packed(dtype)) shape.push_back(4);
    specs.push_back({name, dtype, std::move(shape)});
  }
  return specs;
}

std::string built_file(const std::vector<Spec>& specs, const Metadata& metadata, std::uint64_t alignment) {
  std::vector<NewEntry> entries;
  for (const Spec& spec : specs) entries.push_back({spec.name, spec.dtype, spec.shape});
  auto built = build_header(entries, metadata, alignment);
  RC_ASSERT(built.has_value());
  RC_ASSERT(built->bytes.size() % alignment == 0);
  built->bytes.resize(built->file_bytes, 'd');
  return std::move(built->bytes);
}

RC_GTEST_PROP(SafetensorsProperty, AnyHeaderReadsBackAsItWasBuilt, ()) {
  const std::vector<Spec> specs = any_specs();
  std::set<std::string> keys;
  Metadata metadata;
  for (const auto& key : *rc::gen::container<std::vector<std::string>>(any_text())) {
    if (keys.insert(key).second) metadata.emplace_back(key, *any_text());
  }
  const auto alignment = *rc::gen::element<std::uint64_t>(8, 64, 4096);
  const std::string file = built_file(specs, metadata, alignment);
  const auto header = parse_header(std::as_bytes(std::span(file)), file.size());
  RC_ASSERT(header.has_value());
  RC_ASSERT(header->metadata == metadata);
  RC_ASSERT(header->entries.size() == specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    RC_ASSERT(header->entries[i].name == specs[i].name);
    RC_ASSERT(header->entries[i].dtype == specs[i].dtype);
    RC_ASSERT(header->entries[i].shape == specs[i].shape);
  }
}

RC_GTEST_PROP(SafetensorsProperty, AnyDamageIsSurvivedAndWhatParsesTilesTheFile, ()) {
  std::string file = built_file(any_specs(), {{"format", "pt"}}, 8);
  const auto edits = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<std::size_t, char>>>(
      rc::gen::arbitrary<std::pair<std::size_t, char>>()));
  for (const auto& [at, value] : edits) file[at % file.size()] = value;
  file.resize(file.size() - *rc::gen::inRange<std::size_t>(0, std::min<std::size_t>(file.size(), 20)));
  const auto length = header_bytes(std::as_bytes(std::span(file)), file.size());
  if (!length) return;
  const auto header = parse_header(std::as_bytes(std::span(file)), file.size());
  if (!header) {
    RC_ASSERT(header.error().code == Errc::corrupt);
    RC_ASSERT(header.error().offset.has_value());
    RC_ASSERT(*header.error().offset <= file.size() + 1);
    return;
  }
  std::uint64_t bytes = 0;
  for (const Entry& entry : header->entries) {
    RC_ASSERT(entry.end - entry.begin == tensor_bytes(entry.dtype, entry.shape).value());
    bytes += entry.end - entry.begin;
  }
  RC_ASSERT(header->data_begin + bytes == file.size());
}

RC_GTEST_PROP(SafetensorsProperty, FactsThatNamesDoNotTellReadBack, ()) {
  std::vector<std::pair<std::string_view, Facts>> given;
  for (const std::string_view name :
       {"a", "a.b", "optimizer.state.w.step", "optimizer.state.x.y.exp_avg", "optimizer.state."}) {
    if (*rc::gen::arbitrary<bool>()) continue;
    Facts facts;
    facts.role = *rc::gen::element(Role::param, Role::buffer, Role::slot);
    if (facts.role == Role::slot) {
      facts.parameter = *rc::gen::element<std::string>("", "w", "x.y");
      facts.slot = *rc::gen::element<std::string>("step", "exp_avg");
    }
    facts.true_dtype = *rc::gen::element<std::string>("", "complex128");
    given.emplace_back(name, facts);
  }
  const std::string text = build_facts(given);
  const auto noted = text.empty() ? Result<std::unordered_map<std::string, Facts>>{} : parse_facts(text);
  RC_ASSERT(noted.has_value());
  for (const auto& [name, facts] : given) {
    const auto at = noted->find(std::string(name));
    RC_ASSERT((at == noted->end() ? facts_by_name(name) : at->second) == facts);
  }
}

}  // namespace
}  // namespace ckpt::safetensors
