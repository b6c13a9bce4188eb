#include "format/files/zstd_stream.hpp"

#include <zstd.h>
#include <zstd_errors.h>

#include <string>

namespace ckpt {

void ZstdStream::Free::operator()(ZSTD_DCtx_s* context) const noexcept {
  ZSTD_freeDCtx(context);
}

Result<ZstdStream> ZstdStream::make() {
  ZstdStream stream(ZSTD_createDCtx());
  if (!stream.context_) return fail(Errc::memory, "zstd: no memory for a stream");
  if (ZSTD_isError(ZSTD_DCtx_setParameter(stream.context_.get(), ZSTD_d_windowLogMax, kZstdWindowLog)) != 0) {
    return fail(Errc::internal, "zstd: the window cannot be bounded");
  }
  return stream;
}

Result<ZstdStream::Step> ZstdStream::decode(std::span<const std::byte> in, std::span<std::byte> out) {
  ZSTD_inBuffer from{in.data(), in.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
  if (ZSTD_isError(left) == 0) return Step{from.pos, to.pos, left == 0};
  const std::string reason = std::string("zstd: ") + ZSTD_getErrorName(left);
  switch (ZSTD_getErrorCode(left)) {
    case ZSTD_error_frameParameter_windowTooLarge:
      return fail(Errc::unsupported, "zstd: a window over " + std::to_string(1 << (kZstdWindowLog - 20)) + " MiB");
    case ZSTD_error_dictionary_wrong:
      return fail(Errc::unsupported, reason);
    case ZSTD_error_memory_allocation:
      return fail(Errc::memory, reason);
    case ZSTD_error_checksum_wrong:
      return fail(Errc::checksum, reason);
    default:
      return fail(Errc::corrupt, reason);
  }
}

void ZstdStream::restart() {
  ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
}

std::uint64_t ZstdStream::memory_bytes() const {
  return ZSTD_sizeof_DCtx(context_.get());
}

}  // namespace ckpt
