"""The JSON Schema front end: a schema document becomes a grammar that admits exactly its valid instances.

    document.py      parse, number subschemas, resolve references
    types.py         Python types as schemas
    expansion.py     keywords -> formulas over one JSON type's atoms (atoms.py, formula.py)
    construction.py  value positions and the work list of rules
    arrangement.py order.py   the order of members; objects.py unordered.py members.py keys.py   object rules
    arrays.py distinct.py counted_arrays.py   array rules
    scalars.py counted.py counting.py folding.py finite_numbers.py   scalars: one DFA each, or blocks on the stack
    embedding.py tagged.py   schemas as parts of a larger grammar (tools)
    distinct.py        uniqueItems over items of any number: when an array may be marked
    content.py spacing.py   strings that hold JSON texts; white space

>>> grammar, notes = schema_grammar({"type": "boolean"})
>>> len(grammar.rules)
1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stcc.compiler.frontends.json_schema.arrays import array_rule
from stcc.compiler.frontends.json_schema.construction import Construction, string_rule
from stcc.compiler.frontends.json_schema.content import content_part_rule, content_rule
from stcc.compiler.frontends.json_schema.counted import block_rule, counted_rule
from stcc.compiler.frontends.json_schema.counted_arrays import items_rule
from stcc.compiler.frontends.json_schema.document import Document, parse_schema
from stcc.compiler.frontends.json_schema.expansion import Expander
from stcc.compiler.frontends.json_schema.formula import Formulas
from stcc.compiler.frontends.json_schema.objects import object_rule
from stcc.compiler.frontends.json_schema.scalars import ScalarLanguages
from stcc.compiler.frontends.json_schema.unordered import member_rule
from stcc.compiler.frontends.json_schema.values import read_item
from stcc.compiler.ir import Grammar
from stcc.compiler.options import Deadline, Options

_RULES = {"object": object_rule, "member": member_rule, "array": array_rule, "string": string_rule,
          "counted string": counted_rule, "characters": block_rule,
          "items": items_rule(read_item), "content": content_rule, "content part": content_part_rule}


@dataclass(frozen=True)
class Notes:
    """What the user should know of a compile: lists of ``{pointer, keyword, message}``."""

    warnings: list[dict[str, str]]
    unenforced: list[dict[str, str]]


def schema_grammar(schema: Any, options: Options | None = None, deadline: Deadline | None = None) -> tuple[Grammar, Notes]:
    """The grammar of ``schema`` (a dict, a bool, JSON text or a Python type, as ``types.py`` has them).

    Raises SourceError for what is not a schema, UnsupportedError for keywords that are not enforced, BudgetError past the options' limits.
    """
    options = options or Options()
    deadline = deadline or Deadline(options.time_limit)
    expander = Expander(Document(parse_schema(schema, options.max_depth), options), Formulas())
    construction = Construction(expander, ScalarLanguages(expander, deadline), deadline, _RULES)
    return construction.grammar(), Notes(expander.warnings, expander.unenforced)
