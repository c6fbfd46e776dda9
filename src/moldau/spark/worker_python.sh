#!/bin/sh
# Starts a Python worker of Spark on this machine: see session_factory.use_this_python.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=$kept:$entry ;;
    esac
done
PYTHONPATH=${kept#:}
export PYTHONPATH
case $1 in
    -m) exec "${MOLDAU_WORKER_PYTHON:-python3}" -P "${0%/*}/worker_start.py" "$@" ;;
    *) exec "${MOLDAU_WORKER_PYTHON:-python3}" "$@" ;;
esac
