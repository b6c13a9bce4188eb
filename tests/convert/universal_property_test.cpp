// Any set of tensors, cut into volumes of any size, reads back bit for bit at the places that are computed.
#include <gtest/gtest.h>
// rapidcheck's GoogleTest extra needs the line above.
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "convert/raw_source.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

std::vector<Tensor> any_tensors() {
  std::vector<Tensor> tensors;
  const auto names =
      *rc::gen::container<std::set<std::string>>(rc::gen::container<std::string>(rc::gen::inRange('a', 'h')));
  for (const std::string& name : names) {
    Tensor tensor{.name = name};
    tensor.role = static_cast<Role>(*rc::gen::inRange(0, 4));
    if (tensor.role == Role::blob) {
      tensor.dtype = Dtype::u8;
      tensor.shape = {*rc::gen::inRange<std::uint64_t>(0, 9000)};
    } else {
      tensor.dtype = static_cast<Dtype>(*rc::gen::inRange(0, kDtypeCount));
      const auto rank = *rc::gen::inRange(0, 4);
      for (int d = 0; d < rank; ++d) tensor.shape.push_back(*rc::gen::inRange<std::uint64_t>(0, 12));
      if (*rc::gen::arbitrary<bool>()) tensor.shape.push_back(512);
      if (is_packed(tensor.dtype)) tensor.shape.push_back(8);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

RC_GTEST_PROP(UniversalFormat, AnyTensorsInAnyVolumesReadBackEqual, ()) {
  RawSource source(any_tensors());
  source.request.shard_bytes = *rc::gen::element<std::uint64_t>(0, 1, 4096, 8192, 20000, 100000);
  const TempDir out;
  const std::string target = out.path() + "/x";
  write_out(source.lay_out(universal_format(), target), source.map, source.dir.path(), target);
  const auto io = open_io(IoKind::threads).value();
  const auto map = universal_format().reader->open(*io, target, {});
  if (!map) RC_FAIL(map.error().message);
  RC_ASSERT(map->tensors.size() == source.map.tensors.size());
  for (std::size_t i = 0; i < source.map.tensors.size(); ++i) {
    const std::size_t index = index_of(*map, source.map.tensors[i].name);
    RC_ASSERT(index < map->tensors.size());
    RC_ASSERT(materialize(*map, target, index) == materialize(source.map, source.dir.path(), i));
  }
  const auto stored = universal_format().hashes(*io, target);
  if (!stored) RC_FAIL(stored.error().message);
  RC_ASSERT(stored->findings.empty());
}

}  // namespace
}  // namespace ckpt
