#!/bin/sh
# A night's run, in the folder that has pipelines/ and sql/. What ends with 75 is tried again, three times; nothing else is.
tries=4
while :; do
  gyre run pipelines/nightly.toml --log-format json --metrics metrics/nightly.prom --lineage lineage.jsonl
  code=$?
  tries=$((tries - 1))
  [ "$code" -eq 75 ] && [ "$tries" -gt 0 ] || exit "$code"
  sleep "${WAIT:-900}"
done
