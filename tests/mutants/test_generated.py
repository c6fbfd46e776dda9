"""The generator's mutants: which ones are tried, who notices, and the list of known survivors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from mutants.generated import (
    PACKAGES,
    TESTS,
    Count,
    Key,
    choose,
    find_test_files,
    find_test_folder,
    find_variants,
    read_survivors,
)

RULE = """
class Price:
    def __init__(self, amount):
        self.amount = amount

    def reduced(self, percent):
        if percent < 0:
            raise ValueError(percent)
        return max(self.amount - percent, 0)


def wait_for(price):
    while price.amount > 100:
        price = Price(price.amount - 50)
    return price


def forget(price):
    price.amount = 0
"""
THEIR_TESTS = """
import pytest
from price import Price, wait_for

def test_a_price_is_reduced():
    assert Price(10).reduced(4).__index__() == 6

def test_a_price_is_not_raised():
    with pytest.raises(ValueError):
        Price(10).reduced(-1)

def test_a_price_falls():
    assert wait_for(Price(150)).amount in (99, 100)
"""
HUNT = """
import json, sys
from pathlib import Path
from mutants.generated import hunt, read_variants
folder = Path(sys.argv[1])
count = hunt("shop", read_variants([folder / "price.py"], folder), [folder / "test_price.py"], 2)
keys = [[key.replace, key.by] for key in count.survivors]
print("\\n" + json.dumps([count.mutants, count.caught, keys, len(count.unreached), count.faults]))
"""


def test_survivors_are_those_that_no_test_notices(tmp_path: Path) -> None:
    (tmp_path / "price.py").write_text(RULE)
    (tmp_path / "test_price.py").write_text(THEIR_TESTS)
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('moldau')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", dedent(HUNT), str(tmp_path)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=True,
    )
    mutants, caught, survivors, unreached, faults = json.loads(done.stdout.rpartition("\n\n")[2])
    assert faults == []
    assert "survives: price Price.reduced\n    - percent < 0\n    + percent < 1\n" in done.stdout
    assert sorted(survivors) == [
        ["max(self.amount - percent, 0)", "max(self.amount - percent, 1)"],
        ["percent < 0", "percent < 1"],
        ["percent < 0", "percent <= 0"],
        ["price.amount - 50", "price.amount - 51"],
        ["price.amount > 100", "price.amount > 101"],
    ]
    assert unreached == 2  # of `forget`
    assert caught == mutants - len(survivors) - unreached > 4  # one of them never ends


def test_every_known_survivor_is_a_mutant_and_has_a_reason() -> None:
    known = read_survivors()
    packages = {key.module.removeprefix("moldau.").partition(".rules.")[0] for key in known}
    keys = {variant.key for package in packages for variant in find_variants(package)}
    assert set(known) <= keys
    assert all(len(reason) > 10 for reason in known.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_unit_tests_of_a_package_are_its_tests(package: str) -> None:
    files = find_test_files(package)
    assert any(path.is_relative_to(find_test_folder(package)) for path in files)


def test_stories_judge_the_rules_that_their_stage_plays() -> None:
    scenarios = TESTS / "scenarios"
    groups, transactions = map(
        find_test_files, ("coordinators.groups", "coordinators.transactions")
    )
    assert scenarios / "test_group_stories.py" in groups
    assert scenarios / "test_share_stories.py" in groups
    assert scenarios / "test_transaction_stories.py" not in groups
    assert scenarios / "test_transaction_stories.py" in transactions
    assert scenarios / "test_truncation_stories.py" in find_test_files("replication")
    assert not any(path.is_relative_to(scenarios) for path in find_test_files("quotas"))


def test_a_sample_is_the_same_each_time_and_has_the_size_that_was_asked_for() -> None:
    variants = find_variants("coordinators.transactions")
    assert choose(variants, 1, 0, 1) == variants
    assert choose(variants, 10, 0, 1) == variants[::10]
    sample = choose(variants, 1, 20, 1)
    assert sample == choose(variants, 1, 20, 1)
    assert sample != choose(variants, 1, 20, 2)
    assert len(sample) == 20


def test_a_package_may_have_five_survivors_in_a_hundred() -> None:
    key = Key("module", "function", "a", "b")
    assert Count(package="p", mutants=100, survivors=[key] * 4, unreached=[key]).is_good()
    assert not Count(package="p", mutants=100, survivors=[key] * 6).is_good()
    assert not Count(package="p", mutants=100, faults=["a test cannot be collected"]).is_good()
