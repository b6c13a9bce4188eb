#include "convert/stored_type.hpp"

namespace ckpt::dcp {

Box in_model(Box box, const StoredType& type) {
  if (type.form == StoredType::Form::complex_pair) {
    box.offset.push_back(0);
    box.size.push_back(2);
  } else if (type.form == StoredType::Form::packed_pair) {
    box.offset.back() *= 2;
    box.size.back() *= 2;
  }
  return box;
}

}  // namespace ckpt::dcp
