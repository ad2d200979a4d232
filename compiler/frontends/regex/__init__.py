"""The regex front end: patterns of two dialects to minimal DFAs over UTF-8."""

from stcc.compiler.frontends.regex.language import compile_pattern

__all__ = ["compile_pattern"]
