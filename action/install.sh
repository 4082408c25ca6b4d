#!/usr/bin/env bash
# Install devicefix into a separate virtual environment: the version of the action.
set -euo pipefail

# Not in the workspace, where `-m` would find modules of the checked code.
cd "$RUNNER_TEMP"
venv="$RUNNER_TEMP/devicefix"
"$(command -v python3 || command -v python)" -m venv "$venv"
bin="$venv/bin"
[[ -d $bin ]] || bin="$venv/Scripts" # on Windows

"$bin/python" -m pip install --quiet --disable-pip-version-check "$GITHUB_ACTION_PATH"
echo "devicefix=$bin/devicefix" >>"$GITHUB_OUTPUT"
