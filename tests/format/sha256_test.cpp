#include "format/sha256.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

namespace ckpt {
namespace {

std::string digest(const std::string& text, std::size_t piece) {
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += piece)
    hash.update(std::as_bytes(std::span(text)).subspan(at, std::min(piece, text.size() - at)));
  return hash.finish();
}

// FIPS 180-4, examples of NIST; the others with sha256sum.
TEST(Sha256, OfAnyLengthIsTheStandardsInAnyPieces) {
  for (const std::size_t piece : {1U, 7U, 63U, 64U, 65U, 1000U}) {
    EXPECT_EQ(digest("", piece), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc", piece), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(digest(std::string(55, 'a'), piece), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    EXPECT_EQ(digest(std::string(1000, 'a'), piece),
              "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
  }
}

}  // namespace
}  // namespace ckpt
