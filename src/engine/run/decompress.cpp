#include "engine/run/decompress.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "format/text/error_context.hpp"

namespace ckpt {

Result<Decompressor> Decompressor::make(const Compressed& compressed, std::string path) {
  CKPT_TRY(ZstdStream stream, ZstdStream::make());
  return Decompressor(compressed, std::move(path), std::move(stream));
}

Error Decompressor::at(Error error) const {
  const std::uint64_t offset = compressed_.stored.begin + file_read_ - (input_end_ - input_begin_);
  const std::string item = path_ + ": item at " + std::to_string(compressed_.stored.begin);
  return with_file(with_context(std::move(error), item), path_, offset);
}

Result<> Decompressor::fill(Io& io, FileHandle file) {
  const std::uint64_t left = compressed_.stored.size() - file_read_;
  input_begin_ = 0;
  input_end_ = static_cast<std::size_t>(std::min<std::uint64_t>(left, kPieceBytes));
  const std::uint64_t from = compressed_.stored.begin + file_read_;
  if (auto read = io.read_at(file, from, std::span(input_).first(input_end_)); !read) {
    return fail(with_file(std::move(read).error(), path_, from));
  }
  file_read_ += input_end_;
  read_bytes_ += input_end_;
  return {};
}

Result<std::size_t> Decompressor::read(Io& io, FileHandle file, std::span<std::byte> out) {
  std::size_t done = 0;
  std::array<std::byte, 1> beyond{};  // takes a byte past the bound, so that one is noticed
  for (;;) {
    const bool full = position_ == compressed_.bytes;
    if (done == out.size() && !full) return done;
    if (input_begin_ == input_end_ && file_read_ < compressed_.stored.size()) CKPT_CHECK(fill(io, file));
    const bool no_input = input_begin_ == input_end_;
    if (no_input && at_frame_end_) return done;
    const std::size_t room =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size() - done, compressed_.bytes - position_));
    auto step = stream_.decode(std::span(input_).subspan(input_begin_, input_end_ - input_begin_),
                               full ? std::span<std::byte>(beyond) : out.subspan(done, room));
    if (!step) return fail(at(std::move(step).error()));
    if (full && step->produced > 0) {
      return fail(at({.code = Errc::corrupt,
                      .message = "it decompresses to more than " + std::to_string(compressed_.bytes) + " bytes"}));
    }
    input_begin_ += step->consumed;
    position_ += step->produced;
    done += step->produced;
    at_frame_end_ = step->at_frame_end;
    if (no_input && step->produced == 0) {
      return fail(at({.code = Errc::corrupt, .message = "its compressed data is cut short"}));
    }
  }
}

void Decompressor::restart() {
  stream_.restart();
  input_begin_ = input_end_ = 0;
  file_read_ = 0;
  at_frame_end_ = false;
  position_ = 0;
}

}  // namespace ckpt
