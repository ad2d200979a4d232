"""Context-free grammars: what the front ends of GBNF and Lark share.

    syntax.py      grammars as trees
    checks.py      names defined, rules of use, literals written out
    absorption.py  blanks after blanks
    brackets.py    bracketed parts of recursive rules, factored and cut out
    recursion.py   which rules become automata, and which are called
    lowering.py    the compiler's grammar form
    conflicts.py   why a grammar was refused: the shortest text that leads to the place

>>> from stcc.compiler.frontends.context_free.syntax import ContextFree, Reference, alternatives, literal, series
>>> nested = alternatives([series([literal("("), Reference("s"), literal(")")]), literal("x")])
>>> grammar, warnings = context_free_grammar(ContextFree({"s": nested}, "s", {}))
>>> len(grammar.rules), warnings
(2, [])
"""

from __future__ import annotations

from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.frontends.context_free.absorption import without_repeated_blanks
from stcc.compiler.frontends.context_free.checks import Warnings, checked
from stcc.compiler.frontends.context_free.conflicts import conflict_place
from stcc.compiler.frontends.context_free.lowering import Lowering
from stcc.compiler.frontends.context_free.recursion import plan
from stcc.compiler.frontends.context_free.syntax import ContextFree
from stcc.compiler.ir import Grammar
from stcc.compiler.options import Deadline, Options

__all__ = ["ContextFree", "conflict_place", "context_free_grammar", "grammar_text"]


def grammar_text(source: str | bytes) -> str:
    """The text of a grammar file. SourceError unless it is text, in UTF-8 if it is bytes."""
    if isinstance(source, str):
        return source
    if not isinstance(source, bytes):
        raise SourceError(f"a grammar is text, not {type(source).__name__}")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError("the grammar is not UTF-8 text", pointer=f"offset {error.start}", hint="save it as UTF-8") from None


def context_free_grammar(source: ContextFree, options: Options | None = None, deadline: Deadline | None = None) -> tuple[Grammar, Warnings]:
    """The compiler's grammar of a context-free one, and warnings ``{pointer, keyword, message}``.

    Whether one byte decides each call and return is checked later (``compiler.calls``).

    Raises SourceError for undefined names, UnsatisfiableError where nothing is derived, BudgetError past the options' limits.
    """
    options = options or Options()
    deadline = deadline or Deadline(options.time_limit)
    try:
        bodies, warnings = checked(source, deadline)
        bodies = without_repeated_blanks(bodies, deadline)
        return Lowering(plan(bodies, deadline), options, deadline).grammar(source.start), warnings
    except RecursionError:
        raise BudgetError("rules are written out inside each other too deeply", keyword=source.start,
                          hint="shorten the chains of rules that call nothing") from None
