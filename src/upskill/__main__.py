"""`python -m upskill`: the command line."""

from upskill.cli import main

main()
