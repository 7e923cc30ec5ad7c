#!/bin/sh
# Starts the parts of deploy/compose.yaml on this machine, without containers, and stops them at the end:
#
#   deploy/local.sh                                    waits for Ctrl-C, and prints the variables to use it with
#   deploy/local.sh tablestore tables                  runs a command with these variables
#   deploy/local.sh --without spark-master COMMAND …   without a part of it
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
python="$root/.venv/bin/python"
if [ ! -x "$python" ]; then
    echo "$python is missing: run \`make env jars\` first." >&2
    exit 1
fi
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m deploy.local "$@"
