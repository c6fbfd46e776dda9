"""What all tests share. Its place puts `tests/` on the path, so that `support` can be imported."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a busy machine is no failure. In CI the examples are the same in every run, so that
# a change is judged by its own tests; at home they differ, and find what nobody thought of.
settings.register_profile("moldau", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("moldau")
