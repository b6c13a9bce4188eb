#include "format/torch/tensor_pickle.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

// Foreign rules: torch/serialization.py (_save: persistent_id), torch/_tensor.py (_reduce_ex_internal),
// torch/nn/parameter.py.

namespace ckpt::torch {
namespace {

struct StorageType {
  std::string_view name;
  unsigned bytes;
  std::string_view storage;  // class in `torch`; empty: torch has none
};

constexpr std::array<StorageType, 22> kTypes{{
    {"float32", 4, "FloatStorage"},
    {"float64", 8, "DoubleStorage"},
    {"float16", 2, "HalfStorage"},
    {"bfloat16", 2, "BFloat16Storage"},
    {"int64", 8, "LongStorage"},
    {"int32", 4, "IntStorage"},
    {"int16", 2, "ShortStorage"},
    {"int8", 1, "CharStorage"},
    {"uint8", 1, "ByteStorage"},
    {"bool", 1, "BoolStorage"},
    {"complex64", 8, "ComplexFloatStorage"},
    {"complex128", 16, "ComplexDoubleStorage"},
    {"complex32", 4, ""},
    {"uint16", 2, ""},
    {"uint32", 4, ""},
    {"uint64", 8, ""},
    {"float8_e4m3fn", 1, ""},
    {"float8_e5m2", 1, ""},
    {"float8_e4m3fnuz", 1, ""},
    {"float8_e5m2fnuz", 1, ""},
    {"float8_e8m0fnu", 1, ""},
    {"float4_e2m1fn_x2", 1, ""},
}};

}  // namespace

std::string_view torch_dtype(Dtype dtype, std::string_view true_dtype) {
  if (!true_dtype.empty()) {
    const auto* known =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const StorageType& type) { return type.name == true_dtype; });
    if (known != kTypes.end()) return known->name;
  }
  switch (dtype) {
    case Dtype::boolean:
      return "bool";
    case Dtype::f4:
      return "float4_e2m1fn_x2";
    case Dtype::f6_e2m3:
    case Dtype::f6_e3m2:
      return {};
    case Dtype::u8:
      return "uint8";
    case Dtype::i8:
      return "int8";
    case Dtype::f8_e5m2:
      return "float8_e5m2";
    case Dtype::f8_e4m3:
      return "float8_e4m3fn";
    case Dtype::f8_e8m0:
      return "float8_e8m0fnu";
    case Dtype::f8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case Dtype::f8_e5m2fnuz:
      return "float8_e5m2fnuz";
    case Dtype::i16:
      return "int16";
    case Dtype::u16:
      return "uint16";
    case Dtype::f16:
      return "float16";
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::i32:
      return "int32";
    case Dtype::u32:
      return "uint32";
    case Dtype::f32:
      return "float32";
    case Dtype::c64:
      return "complex64";
    case Dtype::f64:
      return "float64";
    case Dtype::i64:
      return "int64";
    case Dtype::u64:
      return "uint64";
  }
  return {};
}

namespace {

/// Whether the dimensions and row-major strides of a shape fit in 63 bits. Those of a tensor without elements may be any.
bool has_signed_strides(const Shape& shape) {
  std::uint64_t nonzero = 1;
  for (const std::uint64_t size : shape) {
    if (size != 0 && __builtin_mul_overflow(nonzero, size, &nonzero)) return false;
  }
  return nonzero <= INT64_MAX;
}

}  // namespace

Result<TorchForm> torch_form(const std::string& name, Dtype dtype, std::string_view true_dtype, Shape shape) {
  TorchForm out{.dtype = torch_dtype(dtype, true_dtype), .shape = std::move(shape), .is_complex = !true_dtype.empty()};
  const auto refused = [&](std::string why) {
    return fail({.code = Errc::unsupported,
                 .message = name + ": " + why,
                 .tensor = name,
                 .hint = "use --to safetensors or --to ckpt, or select other tensors with --only"});
  };
  if (!has_signed_strides(out.shape)) return refused("torch holds no dimension or stride of 2^63 or more");
  if (out.dtype.empty()) return refused("torch has no element type for " + std::string(dtype_name(dtype)));
  if (out.is_complex) {
    out.shape.pop_back();
  } else if (dtype == Dtype::f4) {
    if (out.shape.empty() || out.shape.back() % 2 != 0)
      return refused("torch stores F4 elements in pairs, but the last dimension is odd");
    out.shape.back() /= 2;
  }
  return out;
}

std::vector<std::uint64_t> dense_strides(const Shape& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<std::uint64_t>(shape[d], 1);
  }
  return strides;
}

pickle::MemoIndex TensorPickler::empty_ordered_dict() {
  out_.begin_object();
  out_.global("collections OrderedDict");
  out_.begin_tuple(0);
  out_.end();
  out_.reduce();
  return out_.end();
}

pickle::MemoIndex TensorPickler::size(const Shape& shape) {
  out_.begin_object();
  out_.global("torch Size");
  out_.begin_tuple(1);
  out_.begin_tuple(shape.size());
  for (const std::uint64_t length : shape) out_.integer(static_cast<std::int64_t>(length));
  out_.end();
  out_.end();
  out_.reduce();
  return out_.end();
}

pickle::MemoIndex TensorPickler::tensor(const StoredTensor& tensor) {
  const auto* type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const StorageType& known) { return known.name == tensor.dtype; });
  const bool typed = type != kTypes.end() && !type->storage.empty();
  out_.begin_object();
  out_.global(typed ? "torch._utils _rebuild_tensor_v2" : "torch._utils _rebuild_tensor_v3");
  out_.begin_tuple(typed ? 6 : 7);
  out_.begin_persistent();
  out_.begin_tuple(5);
  out_.text("storage");
  out_.global(typed ? "torch " + std::string(type->storage) : "torch.storage UntypedStorage");
  if (const auto key = keys_.find(tensor.storage); key != keys_.end()) {
    out_.get(key->second);
  } else {
    keys_.emplace(tensor.storage, out_.own_text(std::to_string(tensor.storage)));
  }
  out_.text("cpu");
  out_.integer(static_cast<std::int64_t>(typed ? tensor.storage_bytes / type->bytes : tensor.storage_bytes));
  out_.end();
  out_.end();
  out_.integer(static_cast<std::int64_t>(tensor.offset));
  out_.begin_tuple(tensor.shape.size());
  for (const std::uint64_t length : tensor.shape) out_.integer(static_cast<std::int64_t>(length));
  out_.end();
  out_.begin_tuple(tensor.shape.size());
  for (const std::uint64_t stride : tensor.strides.empty() ? dense_strides(tensor.shape) : tensor.strides)
    out_.integer(static_cast<std::int64_t>(stride));
  out_.end();
  out_.boolean(tensor.requires_grad);
  empty_ordered_dict();  // backward hooks
  if (!typed) out_.global("torch " + std::string(tensor.dtype));
  out_.end();
  out_.reduce();
  return out_.end();
}

pickle::MemoIndex TensorPickler::parameter(const StoredTensor& tensor) {
  StoredTensor data = tensor;
  data.requires_grad = false;
  out_.begin_object();
  out_.global("torch._utils _rebuild_parameter");
  out_.begin_tuple(3);
  this->tensor(data);
  out_.boolean(tensor.requires_grad);
  empty_ordered_dict();
  out_.end();
  out_.reduce();
  return out_.end();
}

}  // namespace ckpt::torch
