"""Ids for cases and queries that have none: made from what they say, so that no neighbour changes them."""

from __future__ import annotations

import re

LONGEST_WORDS = 40  # characters
# Words that say nothing about a request.
_FILLER = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are as at be by can could do does for from give have how i if in into is it its me my of on or please
        should show so than that the their them then there this to us use using want was we what when where which who
        why will with would write you your
        """,
    )
)


def make_id(text: str, digest: str) -> str:
    """`3f9a-python-function-sorts-list`: apart from the first character on, and readable.

    The hash stands first, as many prompts of a suite begin with the same words.
    """
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=\w)['’](?=\w)", "", text.lower()))
    telling = [word for word in words if word not in _FILLER] or words
    said = ""
    for word in telling:
        if len(said) + len(word) > LONGEST_WORDS:
            said = said or word[:LONGEST_WORDS]
            break
        said = f"{said}-{word}" if said else word
    return f"{digest[:4]}-{said}" if said else digest[:8]
