#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ckpt::test {

/// Writes small tar archives, in memory.
class TarWriter {
 public:
  /// A member of any type, with a header of ustar: names of up to 100 bytes.
  TarWriter& add(const std::string& name, std::string_view bytes, char type = '0', const std::string& link = {}) {
    out_ += header(name, bytes.size(), type, link);
    out_ += bytes;
    out_.resize((out_.size() + 511) / 512 * 512);
    return *this;
  }
  /// A file whose name, of any length, is told by a member before it: of GNU, or by pax records.
  TarWriter& add_long(const std::string& name, std::string_view bytes, bool as_records) {
    if (as_records)
      add("PaxHeader", record("path", name), 'x');
    else
      add("././@LongLink", name + '\0', 'L');
    return add(name.substr(0, 99), bytes);
  }
  std::string finish() const { return out_ + std::string(1024, '\0'); }

  static std::string header(const std::string& name, std::uint64_t bytes, char type, const std::string& link = {}) {
    std::string block(512, '\0');
    const auto put = [&](std::size_t at, std::string_view text) {
      std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, name);
    put(100, "0000644");
    put(124, octal(bytes, 11));
    block[156] = type;
    put(157, link);
    put(257, std::string_view("ustar\0"
                              "00",
                              8));
    seal(block);
    return block;
  }
  /// Makes a header's checksum right.
  static void seal(std::string& block) {
    std::fill_n(block.begin() + 148, 8, ' ');
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(block[i]);
    const std::string digits = octal(sum, 6);
    std::copy(digits.begin(), digits.end(), block.begin() + 148);
    block[154] = '\0';
  }
  /// "LENGTH KEY=VALUE\n"
  static std::string record(const std::string& key, const std::string& value) {
    const std::size_t rest = key.size() + value.size() + 3;
    std::size_t length = rest + std::to_string(rest).size();
    if (std::to_string(length).size() > std::to_string(rest).size()) ++length;
    return std::to_string(length) + " " + key + "=" + value + "\n";
  }

 private:
  static std::string octal(std::uint64_t number, std::size_t digits) {
    std::string out(digits, '0');
    for (std::size_t i = digits; i-- > 0; number /= 8) out[i] = static_cast<char>('0' + number % 8);
    return out;
  }

  std::string out_{};
};

}  // namespace ckpt::test
