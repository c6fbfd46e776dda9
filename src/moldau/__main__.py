"""`python -m moldau` is the `moldau` command."""

from moldau.cli.entry import main

main()
