# Sourced by quickstart and package: build_release builds build/release.
build_release() {
  # A first build leaves out the tests, which need more packages; ./check builds them.
  local tests=()
  [[ -e build/release/CMakeCache.txt ]] || tests=(-DCKPT_TESTS=OFF)
  cmake --preset release "${tests[@]}" && cmake --build --preset release
}
