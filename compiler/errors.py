"""What a compile can say when it stops: where, what, and what to do next.

Every error names the source (a file or ``<schema>``), a place in it (a JSON pointer such as
``#/properties/age``, or ``offset 12`` in a pattern), the keyword or construct at fault, and a hint.

>>> raise UnsupportedError("a schema keyword is not enforced", pointer="#/properties/a", keyword="not",
...                        hint="rewrite it, or pass --unenforced warn")     # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
stcc.compiler.errors.UnsupportedError: <schema>#/properties/a: not: a schema keyword is not enforced ...
"""

from __future__ import annotations

_LONGEST = 300
"""Most characters of a message or a pointer that are shown."""


class CompileError(ValueError):
    """A source that cannot be compiled as asked.

    Attributes:
        source: the file, or a name such as ``<schema>``.
        pointer: JSON pointer (``#/a/b``) or ``offset N``; empty when the whole source is meant.
        keyword: the schema keyword or syntax construct at fault; empty when none is.
        message: what is wrong, one sentence.
        hint: what to do next, one sentence.
    """

    def __init__(self, message: str, *, source: str = "<schema>", pointer: str = "", keyword: str = "", hint: str = "") -> None:
        self.source, self.pointer, self.keyword, self.message, self.hint = source, pointer, keyword, _shortened(message), hint
        super().__init__(self._text())

    def _text(self) -> str:
        pointer = _shortened(self.pointer)
        place = f"{self.source}{pointer}" if pointer.startswith("#") else " ".join(filter(None, (self.source, pointer)))
        head = f"{place}: {self.keyword}: {self.message}" if self.keyword else f"{place}: {self.message}"
        return f"{head} ({self.hint})" if self.hint else head

    def with_source(self, source: str) -> CompileError:
        """The same error, said of ``source``."""
        return type(self)(self.message, source=source, pointer=self.pointer, keyword=self.keyword, hint=self.hint)

    def to_dict(self) -> dict[str, str]:
        """The error as plain data, for ``--json``."""
        return {"error": type(self).__name__, "source": self.source, "pointer": self.pointer, "keyword": self.keyword,
                "message": self.message, "hint": self.hint}


def _shortened(text: str) -> str:
    """``text`` without its middle where it is too long to read; a pattern or a pointer in it may be of any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


class SourceError(CompileError):
    """The source is broken: not JSON, not a schema, not a pattern, a reference that leads nowhere."""


class UnsupportedError(CompileError):
    """The source asks for something that is not enforced; nothing is ever ignored silently."""


class UnsatisfiableError(CompileError):
    """No output can satisfy the source."""


class BudgetError(CompileError):
    """Compiling needs more states, time or depth than the options allow."""
