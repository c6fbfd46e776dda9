"""A sample of the mutants, the quickest, is caught. All of them: `make mutants`."""

from __future__ import annotations

import pytest

from mutants.catalogue import MUTANTS
from mutants.mutant import Mutant
from mutants.runner import Result, judge, try_mutant
from mutants.trial import Trial

SAMPLE = [mutant for mutant in MUTANTS if mutant.is_sample]


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.name)
def test_a_rule_that_is_broken_is_noticed(mutant: Mutant) -> None:
    result = try_mutant(mutant)
    assert result.objection == "", result.describe()


def test_a_mutant_that_nobody_notices_is_an_objection() -> None:
    mutant = next(mutant for mutant in SAMPLE if mutant.seeds is not None)
    trial = Trial(tried=5)
    assert judge(mutant, trial) == "survives 5 seeds"
    result = Result(mutant=mutant, trial=trial, seconds=1.0, objection=judge(mutant, trial))
    assert result.verdict == "WRONG"
