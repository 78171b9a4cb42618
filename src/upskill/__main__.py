"""`python -m upskill`: the command line."""

from upskill.cli import main

if __name__ == "__main__":  # processes that this one starts import it, too
    main()
