"""``contentEncoding`` and ``contentMediaType`` as assertions: strings that are JSON texts themselves, plain or in base64.

In: the atom ``StringContent``. An encoding alone is a regular language and takes part in everything (``scalars.encodings``). That a
string holds a JSON text is not regular, so there is no Boolean algebra on it: where it is the whole of what a string is asked for, the
string is a rule made of the rules of any JSON text, respelled (``stcc.compiler.respelling``), of any depth. Elsewhere, beside a length or
under ``not`` or in one of several alternatives that are told apart, it is left to ``Expander.leave_content``, and what can be said of it
is said by ``content_language``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.compiler import algebra
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.spacing import white_space
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.respelling import encoded, escaped, openings, quoted
from stcc.compiler.scalars.encodings import ENCODINGS, JSON_ENCODINGS, encoded_texts

if TYPE_CHECKING:
    from stcc.compiler.dfa import Dfa
    from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey

_ARRAY, _OBJECT = 1, 2
_CHARACTERS = r'([^"\\\x00-\x1F]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"'
"""What stands between the quotes of a string, the second of them included (RFC 8259, section 7)."""
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?"


@dataclass(frozen=True, eq=False)
class AnyText:
    """Any JSON text, white space around it included: its grammar, and with what bytes each rule may begin (bool ``[256]`` each)."""

    grammar: Grammar
    openings: tuple[npt.NDArray[np.bool_], ...]


def content_language(atom: atoms.StringContent) -> Dfa:
    """The raw strings that are in the atom's encoding, whatever they hold."""
    return encoded_texts(atom.encoding) if atom.encoding else algebra.utf8_strings()


def content_key(atom: atoms.StringContent) -> RuleKey:
    """The key of the rule that reads a string of the atom, from quote to quote."""
    return "content", (JSON_ENCODINGS.index(atom.encoding),), ()


def content_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """A string that is a JSON text: one exit."""
    code = ENCODINGS.get(JSON_ENCODINGS[key[1][0]])
    endings = [b""] if code is None else [code.padding(context) for context in code.boundary]
    return quoted(_spelled(construction, key[1][0], 0, 0, name), endings)


def content_part_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """One rule of any JSON text, spelled as it stands inside a string; ``encoded`` says which exits it has."""
    encoding, rule, context = key[1]
    return _spelled(construction, encoding, rule, context, name)


def _spelled(construction: Construction, encoding: int, number: int, context: int, name: str) -> Rule:
    text = any_text()
    rule = replace(text.grammar.rules[number], name=name)

    def part(callee: int, begun: int) -> int:
        return construction.rule(("content part", (encoding, callee, begun), ()), name)

    code = ENCODINGS.get(JSON_ENCODINGS[encoding])
    return escaped(rule, part) if code is None else encoded(rule, code, context, text.openings, part)


@lru_cache(maxsize=1)
def any_text() -> AnyText:
    """The grammar of any JSON text, made once a process. Strings are in line, for behind an escape they begin like white space does."""
    grammar = Grammar((_text_rule(), _array_rule(), _object_rule()))
    return AnyText(grammar, tuple(openings(grammar)))


def _text_rule() -> Rule:
    builder = RuleBuilder("#")
    end = builder.node()
    _value(builder, white_space(builder, 0), end)
    builder.exit(white_space(builder, end), 0)
    return builder.build()


def _array_rule() -> Rule:
    return _container_rule(b"[", b"]", _value)


def _object_rule() -> Rule:
    return _container_rule(b"{", b"}", _member)


def _container_rule(opening: bytes, closing: bytes, read: Callable[[RuleBuilder, int, int], None]) -> Rule:
    """``read``'s parts, any number of them, between commas and brackets."""
    builder = RuleBuilder("#")
    opened, ended, end = builder.node(), builder.node(), builder.node()
    builder.literal(0, opening, opened)
    first, part = white_space(builder, opened), builder.node()
    builder.epsilon(first, part)
    read(builder, part, ended)
    after = white_space(builder, ended)
    builder.epsilon(_separator(builder, after, b","), part)
    for node in (first, after):
        builder.literal(node, closing, end)
    builder.exit(end, 0)
    return builder.build()


def _member(builder: RuleBuilder, source: int, target: int) -> None:
    named = builder.node()
    _string(builder, source, named)
    _value(builder, _separator(builder, white_space(builder, named), b":"), target)


def _value(builder: RuleBuilder, source: int, target: int) -> None:
    for text in (b"null", b"true", b"false"):
        builder.literal(source, text, target)
    builder.scan(source, compile_pattern(_NUMBER, mode="fullmatch"), (target,))
    _string(builder, source, target)
    for rule in (_ARRAY, _OBJECT):
        builder.call(source, rule, (target,))


def _string(builder: RuleBuilder, source: int, target: int) -> None:
    opened = builder.node()
    builder.byte(source, ord('"'), ord('"'), opened)
    builder.scan(opened, compile_pattern(_CHARACTERS, mode="fullmatch"), (target,))


def _separator(builder: RuleBuilder, node: int, mark: bytes) -> int:
    after = builder.node()
    builder.literal(node, mark, after)
    return white_space(builder, after)
