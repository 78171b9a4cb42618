"""How long the answer of an embedded model may be where nobody says: small models ramble on until they are stopped."""

from __future__ import annotations

from upskill.checks.length import MaxLength
from upskill.suites import Case

MIN_TOKENS, MIN_ACTING_TOKENS = 256, 512  # for an answer, and for a turn of an agent that acts
MAX_TOKENS = 4096
OPENING_TOKENS = 64  # for a turn that is only to show whether a skill is opened
TELLING_CHECKS = ("contains", "equals", "starts_with")  # what they look for is part of a good answer


def fitting_limit(case: Case, *, acts: bool) -> int:
    """In tokens: what a good answer takes as far as the case tells, but room for a few sentences at least.

    Digits, hexadecimal bytes and many scripts take a token or two a character; prose takes a quarter of that.
    """
    expected = [str(named.config) for named in case.checks if named.name in TELLING_CHECKS]
    answers = [answer for answer in (case.reference, *case.right) if isinstance(answer, str)]
    longest = max(map(len, [*expected, *answers]))
    bounds = {named.name: named.config for named in case.checks if isinstance(named.config, int)}
    longest = max(longest, bounds.get("min_length", 0))
    limit = max(MIN_ACTING_TOKENS if acts else MIN_TOKENS, longest)
    for named in case.checks:
        if isinstance(named.check, MaxLength) and named.check.brief and not acts:  # characters; a longer answer fails
            limit = min(limit, 2 * named.check.characters + 16)
    return min(limit, MAX_TOKENS)
