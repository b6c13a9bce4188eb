# Sourced by quickstart and check: need_packages GROUP... installs what packaging/packages.txt lists under these groups.
# Returns 1 with a plain message where something is missing and cannot be installed here.
need_packages() {
  local list group name missing=()
  list="$(dirname "${BASH_SOURCE[0]}")/packages.txt"
  if ! command -v dpkg-query >/dev/null; then
    echo "packages: not Debian or Ubuntu; the build may still work if the packages in $list are installed" >&2
    return 0
  fi
  while read -r group name; do
    [[ " $* " == *" $group "* ]] || continue
    dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
  done < <(grep -v '^#' "$list")
  if [[ ${#missing[@]} -eq 0 ]]; then
    echo "packages: all installed ($*)"
    return 0
  fi
  local root=()
  if [[ $(id -u) -ne 0 ]]; then
    if sudo -n true 2>/dev/null; then
      root=(sudo)
    else
      echo "packages: missing: ${missing[*]}" >&2
      echo "packages: you are not root, and sudo asks for a password; run this, then start again:" >&2
      echo "    sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
  fi
  if ! command -v apt-get >/dev/null; then
    echo "packages: missing: ${missing[*]}, and apt-get is not available to install them" >&2
    return 1
  fi
  echo "packages: installing ${missing[*]}"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
}
