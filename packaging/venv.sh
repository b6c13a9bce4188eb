# Sourced by check: make_venv DIRECTORY builds the Python of the interop tests from tests/requirements.txt, once per list.
# Beyond Debian, pip gives Linux a torch with CUDA (gigabytes). Set CKPT_TORCH_INDEX to an index of CPU wheels to avoid that.
make_venv() {
  local venv=$1 list=tests/requirements.txt stamp
  stamp=$(sha256sum "$list" | cut -d' ' -f1)
  if [[ -e $venv/$stamp ]]; then
    echo "venv: $venv is up to date"
    return 0
  fi
  local pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check)
  # torch first and alone: deepspeed's build imports it, and no other package may choose its version.
  rm -rf "$venv" &&
    python3 -m venv "$venv" &&
    "${pip[@]}" ${CKPT_TORCH_INDEX:+--index-url "$CKPT_TORCH_INDEX"} "$(grep '^torch==' "$list")" &&
    DS_BUILD_OPS=0 "${pip[@]}" -r "$list" &&
    touch "$venv/$stamp"
}
