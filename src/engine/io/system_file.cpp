#include "engine/io/system_file.hpp"

#include <fstream>

namespace ckpt {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string chosen_word(const std::string& line) {
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']', begin);
  return begin == std::string::npos || end == std::string::npos ? line : line.substr(begin + 1, end - begin - 1);
}

}  // namespace ckpt
