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
    r"\b(?:nobody|nothing|none|no one)\s+(?:but|except|other than|else than)\b|\bno\s+other\s+\w+\s+than\b"
    r"|\bif not exists\b|\bwhether or not\b"
    rf"|{_NOT}[^`]*?\b(?:\w+er\s+than|more\s+than|less\s+than|over|above|exceed\w*|only|just|forget\w*|unless|until|before|after)\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    rf"{_NOT}|(?<![\w-])(?:none|neither|nor|nobody|without|unlike|avoid\w*|except|unable|doubt|refus\w+|formerly|previously"
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


# Words that may stand between a denial and what it denies, and those that another statement begins with.
_BETWEEN = frozenset(
    re.findall(
        r"\w+",
        """
        a an the this that these it its your our their my me us you we one any some such
        to of for from in on at as by with via about into through what which how when why who if whether
        is are was be been being do does did have has had will would can could should may might must
        use uses used using run runs running call calls called calling need needs needed want wants try trying
        set pass passing add put give write type choose pick take say saying tell know explain answer answering
        help helping assist mean means name named recommend recommended suggest support supports work works
        question questions command commands option options flag flags setting key file field value branch port
        argument limit ever even really actually simply also always here there right correct anymore longer
        necessarily allowed able sure plain think believe exactly
        """,
    )
)
_WITH = re.compile(r"^\s*(?:\w+\s+){0,2}(?:with|via|through|using)\s*(?:the\s+)?[\"'`(]*$", re.IGNORECASE)


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether what stands at this place of a text is denied by the words around it."""
    if _DENIED_AFTER.match(text[end : end + MOST_AFTER]):
        return True
    before = _CODE.sub(" code ", text[max(0, start - MOST_BEFORE) : start])
    clause = _NO_DENIAL.sub(" ", _BOUNDARY.split(before)[-1])
    denials = list(_DENIAL.finditer(clause))
    if len(denials) % 2 == 0:
        return False
    between = clause[denials[-1].end() :]
    words = re.findall(r"[\w'’.~/-]+", between.casefold())
    # A denial reaches as far as its words do, as in "not kiln fire X"; "without a cache use X" begins anew.
    others = [number for number, word in enumerate(words) if word not in _BETWEEN]
    reaches = not others or others[-1] == len(words) - 1
    return reaches or bool(re.search(_NOT, denials[-1][0], re.IGNORECASE) and _WITH.match(between))


def is_asserted(text: str, start: int, end: int) -> bool:
    return not is_denied(text, start, end)


def denies(text: str) -> bool:
    """Whether a text has a word in it that denies something."""
    return _DENIAL.search(text) is not None
