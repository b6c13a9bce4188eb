#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// A genuine checkpoint of tests/golden and what a reader must find in it.
struct GoldenCase {
  struct Truth {
    std::string key;   ///< "param/even.w"; ends in "#c128" where complex128 is kept as pairs of float64
    std::string name;  ///< that a reader gives it: about.json's `names`, or the key without its kind
    Dtype dtype = Dtype::f32;
    Shape shape{};
    std::string bytes{};  ///< dense, row-major
  };
  std::string root;                         ///< the checkpoint's directory
  std::shared_ptr<nlohmann::json> about{};  ///< about.json; reading it needs <nlohmann/json.hpp>
  std::vector<Truth> truth{};
};
/// `name` is FRAMEWORK/CASE. Fails the running test if something cannot be read.
GoldenCase load_golden(const std::string& name);
/// The directory of the checkpoint of a case, without its truth: for broken cases.
std::string golden_root(const std::string& name);

/// A tensor joined from its chunks, by plain reads of the files; derived chunks are cast.
struct Gathered {
  std::string bytes{};   ///< dense, row-major
  bool complete = true;  ///< every element was in a chunk
  bool once = true;      ///< and in one only
  bool replicas_agree = true;
  bool crc_agrees = true;  ///< of the chunks that have one
};
/// Resolves `elements` (of the whole tensor, row-major; all by default) and reads them. Elements outside stay zero.
Gathered gather(const Map& map, const std::string& root, std::size_t tensor);
Gathered gather(const Map& map, const std::string& root, std::size_t tensor, Extent elements);
/// Gives the whole bytes of a file.
using ReadFile = std::function<std::string(const std::string& path)>;
/// The same for files outside the real file system.
Gathered gather(const Map& map, const std::string& root, std::size_t tensor, const ReadFile& read);

/// Index of a tensor by name; fails the running test if there is none.
std::size_t find_tensor(const Map& map, const std::string& name);

}  // namespace ckpt
