#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/convert/compare.hpp"
#include "api/verbs.hpp"

namespace ckpt {

/// Compares densely stored little-endian elements of one type, value by value, and adds to `out`. Both spans have the
/// same whole number of elements; packed types count bytes, and only whether they are equal. The distance of complex
/// numbers is the absolute value of their difference. Two NaNs are within every tolerance.
void measure_values(Dtype dtype, std::span<const std::byte> left, std::span<const std::byte> right,
                    const std::optional<Tolerance>& tolerance, ValueDifference& out);

/// Reads both tensors of each pair again, as TensorPair::as, and measures how their values differ. Shapes must be
/// equal. Returns one for each pair. Not collective.
Result<std::vector<ValueDifference>> measure_differences(Session& session, const Side& left, const Side& right,
                                                         std::span<const TensorPair> pairs,
                                                         const std::optional<Tolerance>& tolerance,
                                                         const std::string& phase);

/// The prefix that all names of the smaller list have in the other one and lack in this, or the reverse: "model.".
/// Nothing if there is none, or a list is empty.
std::optional<std::string> missing_prefix(const std::vector<std::string>& here, const std::vector<std::string>& there);

}  // namespace ckpt
