"""A Verdict is arithmetic over outcomes: lift with its interval, tokens, cost, and a decision."""
