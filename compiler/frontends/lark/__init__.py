"""The Lark front end: grammars in Lark's notation, as users of constrained decoding write them.

    reading.py    text -> rules and terminals, with the ``lark`` package's own grammar of its notation
    common.py     the terminals of ``%import common``

A grammar is read as one of texts, without a lexer: a text is accepted if some way of splitting it into terminals derives it (Lark's Earley
parser with ``lexer="dynamic_complete"``). What ``%ignore`` names may stand before the first and after every terminal.

>>> grammar = parse_lark('start: "a" start? | NUMBER\\nNUMBER: /[0-9]+/')
>>> sorted(grammar.rules)
['NUMBER', 'start']
"""

from __future__ import annotations

from stcc.compiler.frontends.lark.reading import parse_lark

__all__ = ["parse_lark"]
