#!/usr/bin/env bash
# Run `devicefix check`: write annotations or a SARIF file, the job summary, and the action's outputs.
set -euo pipefail

fail() {
  echo "::error title=devicefix::$1"
  exit 2
}

devicefix="${DEVICEFIX:-devicefix}"
cd "$GITHUB_WORKSPACE"

# Split at white space outside quotes, and expand nothing.
words="$(xargs printf '%s\n' <<<"${DEVICEFIX_ARGS:-}")" || fail "the input 'args' has unbalanced quotes"
options=()
while IFS= read -r word; do
  [[ -z $word ]] || options+=("$word")
done <<<"$words"

paths=()
while IFS= read -r path; do
  [[ -z $path ]] || paths+=("$path")
done <<<"${DEVICEFIX_PATHS:-.}"

sarif=""
case "${DEVICEFIX_FORMAT:-annotations}" in
  annotations) format=(--output-format github) ;;
  sarif)
    sarif="$RUNNER_TEMP/devicefix.sarif"
    format=(--output-format sarif --output-file "$sarif")
    ;;
  *) fail "the input 'format' must be 'annotations' or 'sarif', not '$DEVICEFIX_FORMAT'" ;;
esac

check() {
  "$devicefix" check "${options[@]+"${options[@]}"}" "$@" -- "${paths[@]}"
}

status=0
check --quiet "${format[@]}" || status=$?
[[ $status -le 1 ]] || fail "devicefix failed with exit status $status; see the log"

table="$(check --quiet --exit-zero --statistics --output-format json)"
python="$(command -v python3 || command -v python)"
findings="$("$python" "$(dirname "${BASH_SOURCE[0]}")/summary.py" <<<"$table")"

{
  echo "findings=$findings"
  echo "exit-code=$status"
  [[ -z $sarif ]] || echo "sarif-file=$sarif"
} >>"$GITHUB_OUTPUT"

[[ ${DEVICEFIX_FAIL_ON_FINDINGS:-true} == true ]] || exit 0
exit "$status"
