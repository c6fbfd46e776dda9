"""`pip install 'moldau[regex]'`: the broker matches patterns of consumers and of tools by RE2."""

from __future__ import annotations

import importlib.util

import moldau.testing
from moldau.coordinators.groups.rules.consumer_membership import find_matching

for absent in ("numpy", "pyarrow", "pyspark"):
    assert importlib.util.find_spec(absent) is None, f"the extra brings {absent}"
found = find_matching("orders-(eu|us)", ["orders-eu", "orders-asia", "my-orders-us"])
assert found == {"orders-eu"}, found
with moldau.testing.broker() as broker:
    assert broker.bootstrap
