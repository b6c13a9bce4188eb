# Sourced by package: need_glibc DIRECTORY unpacks glibc 2.31, that of Debian 11, to link against. Nothing is installed.
# Its packages come from the mirror of this machine's Debian 12, and apt checks their signatures.
need_glibc() {
  local root=$1 mirror link target
  if [[ -e $root/usr/lib/x86_64-linux-gnu/libc.so ]]; then
    echo "glibc: $root is up to date"
    return 0
  fi
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Release: bookworm' | head -n 1)
  if [[ $(uname -m) != x86_64 || -z $mirror ]]; then
    echo "glibc: this needs Debian 12 on x86-64, whose apt sources name the release bookworm" >&2
    return 1
  fi
  rm -rf "$root" "$root.apt" && mkdir -p "$root.apt/lists/partial" "$root.apt/archives/partial" "$root.new" || return 1
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye main" >"$root.apt/sources.list"
  local apt=(apt-get -q -o "Dir::Etc::sourcelist=$root.apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=
    -o "Dir::State::lists=$root.apt/lists" -o "Dir::Cache=$root.apt" -o Dir::State::status=/dev/null -o Acquire::Languages=none)
  "${apt[@]}" update && (cd "$root.apt" && "${apt[@]}" download libc6:amd64 libc6-dev:amd64) || return 1
  for package in "$root.apt"/*.deb; do
    dpkg-deb -x "$package" "$root.new" || return 1
  done
  # Links to absolute paths would lead to this machine's glibc.
  while read -r link; do
    target=$(readlink "$link")
    [[ $target != /* ]] || ln -sfrn "$root.new$target" "$link" || return 1
  done < <(find "$root.new" -type l)
  rm -rf "$root.apt" && mv "$root.new" "$root"
}
