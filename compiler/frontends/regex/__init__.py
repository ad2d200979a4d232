"""The regex front end: patterns of two dialects to minimal DFAs over UTF-8."""

from stcc.compiler.frontends.regex.language import codepoints, compile_pattern

__all__ = ["codepoints", "compile_pattern"]
