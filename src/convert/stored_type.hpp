#pragma once

#include <cstdint>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"

namespace ckpt::dcp {

/// How an entry's torch elements become elements of the model.
struct StoredType {
  Dtype dtype = Dtype::u8;
  enum class Form : std::uint8_t {
    plain,
    complex_pair,  ///< a further last dimension of 2
    packed_pair,   ///< F4: the last dimension counts twice as many elements
  } form = Form::plain;
};

/// A box of torch's elements as one of the model's.
Box in_model(Box box, const StoredType& type);

}  // namespace ckpt::dcp
