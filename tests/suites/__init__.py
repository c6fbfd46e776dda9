"""Other projects' test suites, run unmodified against Moldau's brokers.

Nothing of a suite is kept in this repository. The pinned version is fetched from a package registry
into `.suites`, and runs with the environment variables that the suite documents. Tests that
are known to fail are listed with the reason. Every other failure fails the run.
"""
