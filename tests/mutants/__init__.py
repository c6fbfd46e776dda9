"""Rules broken on purpose, each with the proof that somebody notices: `make mutants`.

A mutant is the production code with one statement of it turned into a wrong one. `catalogue` lists
them, each with its verdict: caught by seeds of the simulated cluster, caught by tests that are
named, or redundant by design, because another rule that is named does the same. `make mutants`
tries every verdict anew, and fails where one does not hold.

    make mutants                             # all of them, then a quarter of the generated ones
    make mutants MUTANTS='*watermark*'       # those whose name matches
    make mutants SEEDS=200                   # how many of 200 seeds catch each of them
    python -m mutants generated storage      # all that are generated from the rules of storage

`mutant` says what a mutant is, `places` finds what it changes, `applying` breaks the code, `trial`
tries one in a process of its own, `runner` tries many and compares. `stories` are rare meetings of
faults, told on purpose. `operators` makes mutants of the rules by machine, `generated` tries them,
and `survivors.toml` lists those that nobody can notice.
"""
