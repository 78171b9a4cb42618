"""Whether a mention in an answer is denied there: "not X", "instead of X", "I cannot help with X", "X is wrong".

By rules over English words, and within one clause: "Use A, not B" asserts A and denies B. Two denials cancel each
other: "never push without A" asserts A.
"""

from __future__ import annotations

import re

MOST_BEFORE, MOST_AFTER = 300, 60  # characters around a mention that are looked at
MOST_MENTIONS = 1000  # that are looked at: where all of these are denied, so is the rest

_CODE = re.compile(r"`[^`\n]*`")
# Where another clause begins; "nothing but X" and "all but X" are no such place.
_BOUNDARY = re.compile(
    r"[.!?;:](?=\s|$)|,\s*(?:but|and|so|or|then)?(?=\s)|\n|[()\[\]{}—–]|\s-\s"
    r"|(?<![\w-])(?<!nobody )(?<!nothing )(?<!no one )(?<!none )(?<!all )(?<!any )(?<!thing )(?<!where )but\b"
    r"|\b(?:however|because|so|then|which|while)\b|(?=\bnor\b)",
    re.IGNORECASE,
)
_NOT = r"(?:(?<![\w-])(?:not|never|no|cannot)(?![\w-])|n['’]t\b)"
# What reads like a denial and is none.
_NO_DENIAL = re.compile(
    r"\b(?:nobody|nothing|none|no one)\s+(?:but|except|other than)\b|\bif not exists\b|\bwhether or not\b"
    rf"|{_NOT}[^`]*?\b(?:\w+er\s+than|more\s+than|less\s+than|over|above|exceed\w*|only|just|forget\w*|unless|until|before)\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    rf"{_NOT}|(?<![\w-])(?:none|neither|nor|nobody|without|unlike|avoid\w*|except|unable|refus\w+|formerly|previously"
    r"|instead\s+of|rather\s+than|other\s+than|(?:all|any|\w+thing|\w+where)\s+but|used\s+to\s+be|was\s+called"
    r"|old\s+name|renamed\s+from|deprecated|replaces)(?![\w-])",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s`'\"*_,’”)]*(?:flag|option|setting|one)?\s*(?:"
    r"(?:is|was|are|were|has been|have been|will be|would be)(?:\s+(?:now|long))?\s*"
    r"(?:not|n['’]t|never|no longer|wrong|gone|removed|renamed|replaced|deprecated|obsolete|invalid|incorrect)\b"
    r"|(?:does|do|did|will|would|can|could|should|must)\s*(?:not|n['’]t|never)\s+"
    r"(?:be\b|help|work|exist|apply|suffice|fix)"
    r"|(?:would|will)\s+(?:fail|break)\b|fails\b|no longer\b)",
    re.IGNORECASE,
)


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether what stands at this place of a text is denied by the words around it."""
    if _DENIED_AFTER.match(text[end : end + MOST_AFTER]):
        return True
    before = _CODE.sub(" ", text[max(0, start - MOST_BEFORE) : start])
    clause = _BOUNDARY.split(before)[-1]
    return len(_DENIAL.findall(_NO_DENIAL.sub(" ", clause))) % 2 == 1


def is_asserted(text: str, start: int, end: int) -> bool:
    return not is_denied(text, start, end)


def denies(text: str) -> bool:
    """Whether a text has a word in it that denies something."""
    return _DENIAL.search(text) is not None
