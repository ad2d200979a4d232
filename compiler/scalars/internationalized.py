"""Internationalized host names: a regular language inside IDNA 2008 (RFC 5890 to 5893), as patterns.

Whether such a name is valid depends on tables of Unicode, on contextual and bidirectional rules, on normalisation and on the length of
Punycode. ``NAME`` stays where all of that is certain, so that everything it accepts is valid:

- letters and digits that are PVALID in ``_BLOCKS``: Latin, Greek, Cyrillic, Devanagari, Thai, kana, Han and Hangul, all written left to
  right, so that no name falls under the Bidi rule; no code point with a contextual rule;
- combining marks, not first in a label, only if no text of them can fail to be in NFC (class 0 or virama, composing with nothing);
- a label with characters beyond ASCII has at most 10 code points. A delta of Punycode that takes d > 1 digits is at least the smaller of
  26 * 10 ** (d - 2) and 35 ** (d - 2) (the thresholds of RFC 3492 rise from 1 to 26), and the deltas of a label sum to less than
  0xD7A4 * 11, so ten code points take at most 51 digits and the A-label stays within 63 octets;
- at most 4 labels of at most 60 octets, or a single one of 63, so that names stay within 253; ``.`` separates, its lookalikes don't;
- no ``--`` in third and fourth place, hence no A-labels (``xn--``).

What is PVALID is derived from Python's tables as RFC 5892 says, among the code points that Unicode 3.2 had, so that every Python
derives the same. Cost: 3,000 look-ups, once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

MAX_LABELS = 4
MAX_MAILBOX_LABELS = 3  # 3 labels of 60 octets and a local part of 64 stay within the 254 of a mailbox
MAX_CODE_POINTS = 10

_BLOCKS = ((0xDF, 0x17F), (0x300, 0x36F), (0x3AC, 0x3CE), (0x430, 0x45F), (0x901, 0x96F), (0xE01, 0xE59), (0x3005, 0x3007),
           (0x3041, 0x3096), (0x30A1, 0x30FE))
_WHOLE = ((0x4E00, 0x9FA5), (0xAC00, 0xD7A3))  # every code point is a letter, PVALID, and stable under NFC
_EXCEPTIONS = {0xDF: True, 0x3C2: True, 0x3007: True, 0xB7: False, 0x30FB: False}  # RFC 5892, section 2.6; False: contextual
_LETTERS_AND_DIGITS, _MARKS = ("Ll", "Lo", "Lm", "Nd"), ("Mn", "Mc")
_VIRAMA = 9


def _is_pvalid(point: int) -> bool:
    """RFC 5892 for a code point of ``_BLOCKS``: exceptions, then letters, marks and digits that NFKC and case folding leave alone."""
    text = chr(point)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kind = unicodedata.category(text)
    derived = folded == text and (kind in _LETTERS_AND_DIGITS or kind in _MARKS) and point != 0x34F  # the grapheme joiner is ignorable
    return _EXCEPTIONS.get(point, derived) and unicodedata.ucd_3_2_0.category(text) != "Cn"


def _second_of_composites(points: Iterable[int]) -> set[int]:
    """Code points that NFC may join to the one before."""
    parts = (unicodedata.decomposition(chr(point)).split() for point in points)
    return {int(part[1], 16) for part in parts if len(part) == 2 and not part[0].startswith("<")}


@lru_cache(maxsize=1)
def _letters_and_marks() -> tuple[str, str, str]:
    """Insides of character classes: PVALID letters and digits beyond ASCII, marks that are safe under NFC, all PVALID marks."""
    points = [point for low, high in _BLOCKS for point in range(low, high + 1)]
    composing = _second_of_composites(points)
    valid = [point for point in points if _is_pvalid(point)]
    marks = [point for point in valid if unicodedata.category(chr(point)) in _MARKS]
    letters = [point for point in valid if point not in set(marks) and point not in composing]
    safe = [point for point in marks if unicodedata.combining(chr(point)) in (0, _VIRAMA) and point not in composing]
    return _class(letters, _WHOLE), _class(safe), _class(marks)


def _class(points: list[int], ranges: Iterable[tuple[int, int]] = ()) -> str:
    """The inside of a character class for rising code points and further ranges."""
    runs: list[list[int]] = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in [*runs, *ranges])


def _label(first: str, later: str, most: int) -> str:
    """Labels of up to ``most`` characters without hyphen at either end or in third and fourth place; arguments are insides of classes."""
    inner = f"[{later}\\-]"
    long = f"{inner}(?:[{later}]{inner}|-[{later}]){inner}{{0,{most - 5}}}[{later}]"
    return f"[{first}](?:{inner}{{0,2}}[{later}]|{long})?"


def name() -> str:
    """The pattern of idn-hostname."""
    letters, marks, _ = _letters_and_marks()
    beyond = _label(f"0-9a-z{letters}", f"0-9a-z{letters}{marks}", MAX_CODE_POINTS)
    label = f"(?:{_label('0-9A-Za-z', '0-9A-Za-z', 60)}|{beyond})"
    single = _label("0-9A-Za-z", "0-9A-Za-z", 63)
    return f"(?:{label}(?:\\.{label}){{0,{MAX_LABELS - 1}}}|{single})"


def mailbox_domain() -> str:
    """The pattern of a domain in idn-email; marks need not be in NFC there, as the JSON Schema test suite has it."""
    letters, _, marks = _letters_and_marks()
    label = f"(?:{_label('0-9A-Za-z', '0-9A-Za-z', 60)}|{_label(f'0-9a-z{letters}', f'0-9a-z{letters}{marks}', MAX_CODE_POINTS)})"
    return f"{label}(?:\\.{label}){{0,{MAX_MAILBOX_LABELS - 1}}}"
