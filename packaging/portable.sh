# Sourced by package: builds that run on other machines, and what they need there.
portable=build/portable
glibc=$PWD/build/glibc-2.31
portable_options=(-DCKPT_PORTABLE="$glibc" -DCKPT_TESTS=OFF -DCKPT_BENCH=OFF -DCKPT_EXAMPLES=OFF
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_LIBEXECDIR=libexec)

build_portable() {
  cmake --preset release -B "$portable" "${portable_options[@]}" && cmake --build "$portable"
}

# lowest_glibc DIRECTORY: the newest version of glibc that a program or library in it refers to.
lowest_glibc() {
  local file
  find "$1" -type f -print0 | while IFS= read -r -d '' file; do
    if [[ $(head -c 4 "$file" | tr -d '\0') == $'\x7fELF' ]]; then objdump -T "$file"; fi
  done | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

make_tarball() {  # TARGET_DIRECTORY VERSION
  local staged=$portable/tarball lowest name
  rm -rf "$staged" &&
    cmake --install "$portable" --strip --prefix "$staged/ckpt" &&
    lowest=$(lowest_glibc "$staged/ckpt") || return 1
  name=ckpt-$2-linux-x86_64-glibc$lowest
  rm -f "$1"/ckpt-*-linux-*.tar.gz &&
    mv "$staged/ckpt" "$staged/$name" &&
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$staged" -cf - "$name" | gzip -9n >"$1/$name.tar.gz"
}

make_package_venv() {  # DIRECTORY
  local list=packaging/wheel-requirements.txt stamp
  stamp=$(sha256sum "$list" | cut -d' ' -f1)
  [[ -e $1/$stamp ]] ||
    { rm -rf "$1" && python3 -m venv "$1" && "$1/bin/python" -m pip install -q --disable-pip-version-check -r "$list" && touch "$1/$stamp"; }
}

make_wheel() {  # TARGET_DIRECTORY VENV
  local raw=build/package/raw option defines=() wheel
  for option in "${portable_options[@]}"; do defines+=(-C "cmake.define.${option#-D}"); done
  rm -rf "$raw" "$1"/ckpt-*.whl &&
    PATH="$PWD/$2/bin:$PATH" "$2/bin/python" -m pip wheel . -q --disable-pip-version-check --no-deps --no-build-isolation -w "$raw" \
      -C build-dir="$portable" "${defines[@]}" &&
    wheel=$(ls "$raw"/ckpt-*.whl) &&
    # MPI belongs to the cluster: its library is found when ckpt runs under mpirun.
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH PATH="$PWD/$2/bin:$PATH" "$2/bin/auditwheel" repair --exclude libmpi.so.40 -w "$1" "$wheel"
}
