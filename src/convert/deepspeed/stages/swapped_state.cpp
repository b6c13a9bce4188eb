#include "convert/deepspeed/stages/swapped_state.hpp"

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {
namespace {

/// "0_1": numbers of parameters. The identifier becomes a part of a path.
bool is_identifier(std::string_view id) {
  constexpr std::size_t kMaxBytes = 200;
  return !id.empty() && id.size() <= kMaxBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return (c >= '0' && c <= '9') || c == '_'; });
}

bool is_slot_name(std::string_view slot) {
  return !slot.empty() && slot.size() <= 32 && std::all_of(slot.begin(), slot.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Result<std::uint64_t> part_elements(const GroupShapes& shapes, std::uint64_t part_count) {
  std::uint64_t elements = 0;
  for (const NamedShape& shape : shapes) {
    CKPT_TRY(const cut::Partition cut, cut::partition({.length = shape.elements, .part_count = part_count}));
    CKPT_TRY(elements, checked_add(elements, cut.part_elements));
  }
  return elements;
}

/// A whole raw file as a run of `elements`.
Result<Run> raw_run(FileSet& files, const std::string& path, std::uint64_t elements, std::uint64_t alignment,
                    Dtype dtype) {
  CKPT_TRY(const std::uint32_t file, files.add_raw(path));
  CKPT_TRY(const std::uint64_t bytes, checked_mul(elements, unit_bytes(dtype)));
  CKPT_TRY(const std::uint64_t end, checked_add(bytes, alignment - 1));
  const std::uint64_t expected = end / alignment * alignment;
  const std::uint64_t held = files.bytes_of(file);
  if (held != expected) {
    return fail({.code = Errc::corrupt,
                 .message = path + ": has " + std::to_string(held) + " bytes, but " + std::to_string(elements) +
                            " elements take " + std::to_string(expected) + " (rounded up to " +
                            std::to_string(alignment) + ")",
                 .file = path,
                 .offset = std::min(held, expected)});
  }
  return Run{.offset = 0, .elements = elements, .file = file, .dtype = dtype};
}

}  // namespace

Result<std::uint64_t> place_swapped(FileSet& files, const std::string& folder, std::uint64_t rank,
                                    const std::vector<GroupShapes>& shapes, OptimStates& states) {
  std::uint64_t taken = 0;
  const std::string number = std::to_string(rank);
  const std::string directory = folder + "/rank" + (number.size() < 2 ? "0" : "") + number + "/";
  for (std::size_t g = 0; g < std::min(states.groups.size(), shapes.size()); ++g) {
    GroupState& group = states.groups[g];
    if (group.swapped.empty()) continue;
    if (!is_identifier(group.swapped)) {
      return fail({.code = Errc::refused,
                   .message = states.path + ": fp32_flat_groups: sub-group " + std::to_string(g) +
                              ": ds_id is not a list of parameter numbers",
                   .file = states.path});
    }
    CKPT_TRY(const std::uint64_t elements, part_elements(shapes[g], states.part_count));
    if (elements == 0) continue;  // empty, not swapped
    const auto place = [&](const std::string& name, Run& run) -> Result<> {
      if (run.elements != 0) return {};
      CKPT_TRY(run, raw_run(files, directory + name + ".tensor.swp", elements, states.swap_alignment, run.dtype));
      ++taken;
      return {};
    };
    CKPT_CHECK(place(group.swapped, group.master));
    for (auto& [slot, run] : group.slots) {
      if (!is_slot_name(slot)) {
        return fail(
            {.code = Errc::refused,
             .message = states.path + ": sub-group " + std::to_string(g) + ": an optimizer state with an invalid name",
             .file = states.path});
      }
      CKPT_CHECK(place(slot + "-" + group.swapped, run));
    }
  }
  return taken;
}

}  // namespace ckpt::deepspeed
