# Sourced by package: Debian packages of build/release, for the release of Debian or Ubuntu that built it.
#   ckpt       the command, man pages, completions, libckpt; HDF5 is recommended and MPI suggested, which it runs without
#   ckpt-dev   headers, and what CMake and pkg-config need
make_debs() {  # TARGET_DIRECTORY VERSION
  local staged=build/package/deb triplet
  triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH) && rm -rf "$staged" "$1"/ckpt*.deb && umask 022 || return 1
  stage_deb "$staged/ckpt" Unspecified library && stage_deb "$staged/ckpt-dev" development &&
    gzip -9n "$staged/ckpt/usr/share/man/man1/"*.1 || return 1
  rm -f "$staged/ckpt/usr/share/doc/ckpt/LICENSE"
  local depends
  mkdir -p "$staged/debian" && printf 'Source: ckpt\n\nPackage: ckpt\nArchitecture: any\n' >"$staged/debian/control" &&
    depends=$(cd "$staged" && dpkg-shlibdeps -O --ignore-missing-info -Sckpt -dDepends ckpt/usr/bin/ckpt ckpt/usr/lib/libckpt.so.*.*.* \
      -dRecommends ckpt/usr/libexec/ckpt/ckpt-h5 -dSuggests ckpt/usr/lib/libckpt_mpi.so) || return 1
  mkdir -p "$staged/ckpt/DEBIAN" "$staged/ckpt-dev/DEBIAN" &&
    echo 'activate-noawait ldconfig' >"$staged/ckpt/DEBIAN/triggers" &&
    printf 'libckpt 1 ckpt (>= %s)\n' "$2" >"$staged/ckpt/DEBIAN/shlibs" &&
    deb_control ckpt "$2" "$staged/ckpt" "$(sed -n 's/^shlibs:\([A-Z][a-z]*\)=/\1: /p' <<<"$depends")" \
      "converts, verifies and manages training checkpoints" &&
    deb_control ckpt-dev "$2" "$staged/ckpt-dev" "Depends: ckpt (= $2), libexpected-dev" "libckpt for programs in C and C++" || return 1
  local package
  for package in ckpt ckpt-dev; do
    (cd "$staged/$package" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums) &&
      SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH dpkg-deb --root-owner-group -Zxz --build "$staged/$package" "$1" || return 1
  done
}

stage_deb() {  # DIRECTORY COMPONENT...: what these components install, with the licence and the changes
  local directory=$1 component documents
  shift
  for component; do
    DESTDIR="$directory" cmake --install build/release --strip --prefix /usr --component "$component" || return 1
  done
  documents=$directory/usr/share/doc/${directory##*/}
  mkdir -p "$documents" &&
    { printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: the authors of ckpt\nLicense: Apache-2.0\n' &&
      printf ' On Debian systems the license is in /usr/share/common-licenses/Apache-2.0.\n'; } >"$documents/copyright" &&
    printf 'ckpt (%s) unstable; urgency=medium\n\n  * CHANGELOG.md lists the changes.\n\n -- %s  %s\n' "$version" "$maintainer" \
      "$(date -Rud "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$documents/changelog.gz"
}

deb_control() {  # PACKAGE VERSION DIRECTORY DEPENDENCIES SUMMARY
  cat >"$3/DEBIAN/control" <<EOF
Package: $1
Version: $2
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk "$3/usr" | cut -f1)
$4
Section: science
Priority: optional
Description: $5
 Reads and writes checkpoints of DeepSpeed, PyTorch DCP, Megatron-LM,
 safetensors, torch.save and HDF5, bit for bit, without Python or a GPU, and
 keeps those of many training runs in one store.
EOF
}
