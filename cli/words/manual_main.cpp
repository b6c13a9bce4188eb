// Writes the man pages (scdoc) and the completion scripts into a directory; run by the build, not installed.
#include <fstream>
#include <iostream>
#include <string>

#include "cli/words/manual.hpp"

namespace {

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::cerr << path << ": cannot be written\n";
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  bool good = write(folder + "ckpt.1.scd", ckpt::cli::manual_page(nullptr));
  for (const ckpt::cli::Verb& verb : ckpt::cli::verbs())
    if (verb.has_page())
      good = write(folder + "ckpt-" + std::string(verb.name) + ".1.scd", ckpt::cli::manual_page(&verb)) && good;
  for (const std::string& shell : ckpt::cli::completion_shells())
    good = write(folder + "ckpt." + shell, ckpt::cli::completion_script(shell).value_or("")) && good;
  return good ? 0 : 1;
}
