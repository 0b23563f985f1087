#!/bin/sh
# Runs the nightly pipeline in the folder that contains pipelines/ and sql/.
# Retries exit code 75 up to three times, and no other code.
tries=4
while :; do
  gyre run pipelines/nightly.toml --log-format json --metrics metrics/nightly.prom --lineage lineage.jsonl
  code=$?
  tries=$((tries - 1))
  [ "$code" -eq 75 ] && [ "$tries" -gt 0 ] || exit "$code"
  sleep "${WAIT:-900}"
done
