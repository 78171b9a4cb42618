"""Whether an answer denies what it mentions: "not X", "instead of X", "I cannot help with X", "X is wrong".

Rules over English words, within one clause. Two denials cancel out: "never push without A" asserts A.
"""

from __future__ import annotations

import re

MAX_BEFORE, MAX_AFTER = 300, 120  # characters around a mention that are looked at
MAX_MENTIONS = 1000  # that are looked at: where all of these are denied, so is the rest

# Patterns as text: `re` compiles each when it is first used, and keeps it. Few runs use all of them.
_CODE = r"`[^`\n]*`"
# Where another clause begins; "nothing but X" and "all but X" are no such place.
_BOUNDARY = (
    r"(?i)[.!?;:](?=\s|$)|,\s*(?:but|and|so|or|then)?(?=\s)|\n|[()\[\]{}—–]|\s-\s"
    r"|(?<![\w-])(?<!nobody )(?<!nothing )(?<!no one )(?<!none )(?<!all )(?<!any )(?<!thing )(?<!where )but\b"
    r"|\b(?:however|because|so|then|which|while)\b|(?=\bnor\b)"
)
_NOT = r"(?:(?<![\w-])(?:not|never|no|cannot)(?![\w-])|n['’]t\b)"
# What reads like a denial and is none.
_NO_DENIAL = (
    r"(?i)\b(?:nobody|nothing|none|no one)\s+(?:but|except|other than|else than)\b|\bno\s+other\s+\w+\s+than\b"
    r"|\bif not exists\b|\bwhether or not\b|\bwhy not\b"
    rf"|{_NOT}[^`]*?\b(?:\w+er\s+than|more\s+than|less\s+than|over|above|exceed\w*|only|just|forget\w*|unless|until|before|after)\b"
)
_DENIAL = (
    rf"(?i){_NOT}|(?<![\w-])(?:none|neither|nor|nobody|without|unlike|avoid\w*|except|unable|doubt|refus\w+|formerly|previously"
    r"|instead\s+of|rather\s+than|other\s+than|(?:all|any|\w+thing|\w+where)\s+but|used\s+to\s+be|was\s+called"
    r"|old\s+name|renamed\s+from|deprecated|replaces)(?![\w-])"
)
_ENDED = "gone|removed|deprecated|obsolete|dropped|lifted|abolished|withdrawn|retired|discontinued|superseded"
# Says of something where it is missing, and not that it is the wrong answer: "X isn't set here".
_STATE = r"(?!\s+(?:yet\s+)?(?:there|set|defined|exported|present|passed|visible)\b)"
_DENIED_AFTER = (
    r"(?i)[\s`'\"*_,’”)]*(?:flag|option|setting|one)?\s*(?:"
    r"(?:is|was|are|were|has been|have been|will be|would be)(?:\s+(?:now|long))?\s*"
    rf"(?:(?:not|n['’]t){_STATE}|never|no longer|wrong|renamed(?!\s+from)|replaced|invalid|incorrect|too\s+\w+"
    rf"|{_ENDED})\b"
    r"|used\s+to\s+be\b(?!\s+(?:called|named|known))"
    r"|(?:does|do|did|will|would|can|could|should|must)\s*(?:not|n['’]t|never)\s+"
    r"(?:be\b|help|work|exist|apply|suffice|fix)"
    r"|(?:would|will)\s+(?:fail|break)\b|fails\b|no longer\b)"
)
# What the mention is only a part of has ended: "the X limit no longer applies", "the rule of X has been lifted".
_ENDED_AFTER = (
    r"(?i)[\s`'\"*_’”]*(?:(?!(?:an?|after|and|as|because|before|but|if|its|now|once|our|since|so|that|the|unless|until|when"
    r"|where|which|while|your)\b)[\w°%/.-]+\s+){0,3}?"
    r"(?:(?:is|are)?\s*no longer\s+(?:in\s+(?:use|force)"
    r"|\w*(?:accept|allow|appl|ask|count|exist|help|hold|matter|need|recommend|requir|stand|support|true|used|valid|work)\w*)"
    rf"|(?:is|are|was|were|has been|have been)\s+(?:now\s+)?(?:{_ENDED}))\b"
)
# Where that can be: at the beginning of a clause, and after "the" or "of", but not in "with the X".
_SUBJECT = (
    r"(?i)(?:^\s*|(?<!with )(?<!using )(?<!by )(?<!via )"
    r"\b(?:the|our|your|that|this|old|former|of)\s+)[`'\"*_(]*$"
)
# The rest of a question, and a no.
_ANSWERED_NO = (
    r"(?i)(?:[^.!?;:\n]|[.:](?!\s))*\?[\s`'\"*_)’”]*"
    r"(?:(?:no|nope|never|wrong)(?=\s*(?:[,.;:!\n—–]|-\s|$)|[*_]|\s+(?:it|that|this|they|we|you)\b)"
    r"|no longer\b|not (?:any ?more|at all|quite|really)\b)"
)
# The mention is inside of code, a JSON value or an XML element, which is denied as a whole.
_INSIDE = r"(?<!`)`[^`\n]*$|[{\[][^{}\[\]]*$|<[\w:.-]+(?:\s[^<>]*)?>[^<>]*$"
_ELEMENT = r"<([\w:.-]+)(?:\s[^<>]*)?>[^<>]*</\1>|<[\w:.-]+(?:\s[^<>]*)?/>"
# What introduces a block or the rest of a line: "Not this:", or "It is not" above it. "Not in a loop:" denies nothing.
_FENCE = r"(?m)^[ \t]*(?:```|~~~)[^`\n]*\n"
_INTRODUCTION = r"([^\n]*?)\s*(?::|\n)\s*[`'\"*_>-]*\s*$"
_POINTS_ON = (
    r"(?i)(?:\b(?:not|never|cannot|avoid)|n['’]t)\b\s*(?:\w+\s+){0,3}?"
    r"(?:do|like|use|using|run|write|put|type|say|try|answer|this|these|that|those|(?:the\s+)?following)?$"
)
# "It is not A: B, C.", "I cannot help with A, B.": all is denied to the end of the sentence, unless another begins.
_SENTENCE_END = r"[.!?](?=\s|$)|\n"
_DENIED_SENTENCE = (
    r"(?i)(?:^|[,;:]\s|\s-\s)[\s`'\"*_]*(?:(?:it|that|this)(?:\s+is\s+not|\s+isn['’]t|['’]s\s+not)|(?:do\s+not|don['’]t|never)\s+use"
    r"|(?:i\s+|i['’]m\s+|i\s+am\s+)?(?:cannot|can['’]t|can not|won['’]t|unable to|not able to)"
    r"\s+(?:help|assist|answer|say|tell|comment))\b(.*)$"
)
_BEGINS_ANEW = (
    r"(?i)\b(?:but|so|it|it['’]s|that|this|they|we|you|i|is|are|was|were|has|have|do|does|can|must|should|will|use|run|take|try"
    r"|rather|instead|because|as|since|if|when|which|while|then|only|just|not|no|never|nor|without|see|ask)\b|\bn['’]t\b|[;—–?]|\s-\s"
)

# Advice against something is against all that the clause goes on to say.
_ADVICE = r"(?i)\s*(?:\w+\s+)?(?:recommend|suggest|advise|advice|encourage|propose)\w*\b"
_SUBORDINATE = r"(?i)\b(?:as|given|if|since|unless|until|when|whenever|where)\b"


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
_WITH = r"(?i)^\s*(?:\w+\s+){0,2}(?:with|via|through|using)\s*(?:the\s+)?[\"'`(]*$"


def is_denied(text: str, start: int, end: int) -> bool:
    after = text[end : end + MAX_AFTER]
    before = _outside(text[max(0, start - MAX_BEFORE) : start])
    clause = re.split(_BOUNDARY, before)[-1]
    if re.match(_DENIED_AFTER, after) or (
        re.search(_SUBJECT, clause) and re.match(_ENDED_AFTER, after)
    ):
        return True
    denied = (
        _is_denied_by(clause)
        or _is_in_denied_sentence(before, after)
        or _is_introduced_by_denial(text[:start])
    )
    return not denied if re.match(_ANSWERED_NO, after) else denied


def _outside(before: str) -> str:
    """What is before the code or element that a mention is in."""
    before = re.sub(_ELEMENT, " code ", re.sub(_CODE, " code ", before))
    while inside := re.search(_INSIDE, before):
        before = before[: inside.start()]
    return before


def _is_introduced_by_denial(before: str) -> bool:
    fences = [fence.start() for fence in re.finditer(_FENCE, before)]
    before = before[: fences[-1]] if len(fences) % 2 else before
    introduction = re.search(_INTRODUCTION, _outside(before[-MAX_BEFORE:]))
    if introduction is None:
        return False
    clause = re.sub(_NO_DENIAL, " ", re.split(_BOUNDARY, introduction[1])[-1])
    return (
        bool(re.search(_POINTS_ON, clause))
        and not re.search(_SUBORDINATE, clause)
        and _is_denied_by(clause)
    )


def _is_in_denied_sentence(before: str, after: str) -> bool:
    rest = re.search(_DENIED_SENTENCE, re.split(_SENTENCE_END, before)[-1])
    after = re.split(_SENTENCE_END, after)[0]
    # "…, X still works" says something of X.
    return (
        bool(rest)
        and not re.search(_BEGINS_ANEW, f"{rest[1]} , {after}")
        and not re.match(r"\s+[a-z]", after)
    )


def _is_denied_by(clause: str) -> bool:
    clause = re.sub(_NO_DENIAL, " ", clause)
    denials = list(re.finditer(_DENIAL, clause))
    if len(denials) % 2 == 0:
        return False
    between = clause[denials[-1].end() :]
    words = re.findall(r"[\w'’.~/-]+", between.casefold())
    # A denial reaches as far as its words do, as in "not kiln fire X"; "without a cache use X" begins anew.
    others = [number for number, word in enumerate(words) if word not in _BETWEEN]
    reaches = not others or others[-1] == len(words) - 1
    if reaches or not re.search(_NOT, denials[-1][0], re.IGNORECASE):
        return reaches
    advice = re.match(_ADVICE, between) and not re.search(_SUBORDINATE, between)
    return bool(advice or re.match(_WITH, between))


# What denies, in languages with spaces between words (as whole words) and in those without.
_SPACED = (
    # English
    r"(?<!or )not(?! only| just| merely)|cannot|\w+n't|never|neither|nor|without|none (of|is|are)|nothing"
    r"|nobody|nowhere|no one|avoids?|lacks?|free (of|from)"
    # English, Spanish
    r"|(?<!or )(?<!say )(?<!says )(?<!said )(?<!answers )no (?!to |or |and |solo |sólo )[^\W\d]+"
    # German, Dutch
    r"|nichts?|kein(e[mnrs]?)?|nie(mals|mand)?|ohne|weder|niet|niets|geen|nooit|zonder"
    # French
    r"|(ne |n')[^.;]*?\b(pas|jamais|rien|aucune?|personne|ni)|aucune?|sans (\w+(er|ir|re)|aucune?|que)"
    # Spanish, Portuguese, Italian
    r"|nunca|jam[aá]s|ning[uú]n[ao]?|nadie|tampoco|sin (\w+[aei]r|ning\w+|que)"
    r"|não|nenhuma?|ninguém|nem|sem|non [^\W\d]+|nessun[ao]?|niente|nulla|senza"
    # Russian
    r"|не|нет|ни|никогда|никто|ничего|без"
)
_UNSPACED = (
    # Chinese, Japanese, Korean
    r"[没沒]|不(?![仅僅但只同断斷错錯过過])|未(?!来|來)|[无無](?!论|論)|并非|並非"
    r"|(?<!少)(?<!危)(?<!だけで)(?<!だけじゃ)(ない|なく|なかった)|ません|ずに"
    r"|없|않|지 못"
)
# Code, quotations, options and identifiers, whose words are not the text's own; and "must" in Japanese.
_QUOTED = (
    r"(?i)`[^`]*`|\"[^\"]*\"|«[^»]*»|「[^」]*」|『[^』]*』|(?<!\w)'[^']*'(?!\w)|(?<![!-~])--?[a-z][!-~]*"
    r"|[!-~]*[a-z0-9][-_/.=:]+[a-z0-9][!-~]*|な(ければ|くては)な(らない|りません)|かもしれ(ない|ません)"
)
QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})


def denies(text: str) -> bool:
    """Whether a text has a word of its own that denies something."""
    return (
        re.search(rf"(?i)\b({_SPACED})\b|{_UNSPACED}", re.sub(_QUOTED, " ", text.translate(QUOTES)))
        is not None
    )
