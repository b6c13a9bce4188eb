# Sourced by quickstart and check. step NAME COMMAND...: runs a command with its output in a log, $logs/NAME.log, and shows one
# line of progress: the last "[done/total]" of ninja, "done/total Test" of ctest or line of anything else. Where standard output
# is no terminal the line is printed once, when the step ends. A step that fails shows the end of its log. Returns the
# command's verdict. Sets step_log and step_seconds.
#
# Inside `if` bash ignores `set -e` down to the last function, so what a step calls joins its commands by &&.
step() {
  local name=$1 pid start=$SECONDS status=0
  shift
  mkdir -p "$logs"
  step_log="$logs/${name//[^a-z0-9]/_}.log"
  ("$@") >"$step_log" 2>&1 </dev/null &
  pid=$!
  if [[ -t 1 ]]; then
    while kill -0 "$pid" 2>/dev/null; do
      printf '\r\033[K== %s  %d s  %s' "$name" "$((SECONDS - start))" "$(step_progress "$step_log")"
      sleep 1
    done
    printf '\r\033[K'
  fi
  wait "$pid" || status=$?
  step_seconds=$((SECONDS - start))
  if [[ $status -eq 0 ]]; then
    printf '== %s: done, %d s\n' "$name" "$step_seconds"
  else
    printf '== %s: FAILED (exit %d), %d s; the whole log: %s\n' "$name" "$status" "$step_seconds" "$step_log"
    tail -n 60 "$step_log"
  fi
  return "$status"
}

# step_progress LOG: what a step is at, at most 60 characters.
step_progress() {
  tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | tr -d '\000-\010\013-\037\177' |
    sed -nE 's/^(\[[0-9]+\/[0-9]+\]).*/\1/p; t; s/^ *([0-9]+\/[0-9]+) Test +#.*/\1 tests/p; t; /[^ ]/p' | tail -n 1 | cut -c1-60
}
