"""Benchmarks of the broker, seen from outside: `python -m bench --help`.

Each module with a `run` is one benchmark. All of them measure a real broker process over loopback
and, in the same run, what the machine can do at best, so that the ratios hold on any machine. How
to read the figures: docs/benchmarks.md.
"""
