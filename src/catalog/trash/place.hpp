#pragma once

#include <string>
#include <string_view>

/// Paths in the trash: STORE/.ckpt/trash/RUN/NAME, next to it NAME.json.
namespace ckpt::catalog {

inline constexpr std::string_view kRecordSuffix = ".json";
inline constexpr std::string_view kSecondMark = ".~";  ///< before a number: there was one of that name already
/// The run of checkpoints directly in the store's directory.
inline constexpr std::string_view kStoreItself = ".";

/// STORE/.ckpt/trash/RUN
std::string trash_of_run(const std::string& store, const std::string& run);
/// STORE/.ckpt/trash/RUN/NAME.json
std::string record_path(const std::string& store, const std::string& run, const std::string& kept_as);

}  // namespace ckpt::catalog
