"""The compiler: sources to artifacts.

>>> from stcc.compiler import compile_json_schema
>>> artifact = compile_json_schema({"type": "boolean"})
>>> artifact.kind
'json_schema'
"""

from stcc.compiler.binding.bind import bind
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsatisfiableError, UnsupportedError
from stcc.compiler.frontends.openapi import list_operations
from stcc.compiler.options import Options
from stcc.compiler.pipeline import (
    compile_gbnf,
    compile_json_schema,
    compile_lark,
    compile_openapi,
    compile_policy,
    compile_regex,
    compile_tools,
)
from stcc.compiler.vocabularies import vocabulary_from_tokenizer

__all__ = [
    "BudgetError",
    "CompileError",
    "Options",
    "SourceError",
    "UnsatisfiableError",
    "UnsupportedError",
    "bind",
    "compile_gbnf",
    "compile_json_schema",
    "compile_lark",
    "compile_openapi",
    "compile_policy",
    "compile_regex",
    "compile_tools",
    "list_operations",
    "vocabulary_from_tokenizer",
]
