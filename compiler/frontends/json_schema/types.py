"""Python types -> JSON Schema: pydantic models, dataclasses, TypedDict classes, and every other hint that pydantic describes.

In: a class or a type hint (``list[Point]``, ``Annotated[int, Field(ge=0)]``, ``Literal[...]``, a union), or a ``TypeAdapter``; or the
name of one, ``package.module:Name``. Out: the schema of what pydantic's validation takes (its ``validation`` mode), as plain data.
pydantic is imported when a type is given that does not describe itself, and never otherwise; a module is imported, and so run, when it
is named, and never otherwise.

>>> is_type(int), is_type(list[int]), is_type({"type": "integer"}), is_type(True)
(True, True, False, False)
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import types
import typing
from typing import Any

from stcc.compiler.errors import SourceError, UnsupportedError

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_HINTS: tuple[Any, ...] = (types.UnionType, types.GenericAlias, typing.NewType)


def is_type(source: Any) -> bool:
    """Whether ``source`` is a class, a type hint or a ``TypeAdapter``, rather than a schema."""
    if isinstance(source, (type, *_HINTS)) or source is Any or typing.get_origin(source) is not None:
        return True
    return type(source).__name__ in ("TypeAliasType", "TypeAdapter") and not isinstance(source, (str, bytes, dict))


def type_schema(source: Any) -> Any:
    """The JSON Schema of a type, as plain data.

    Raises:
        SourceError: pydantic is not installed.
        UnsupportedError: pydantic cannot describe the type.
    """
    model = getattr(source, "model_json_schema", None)
    name = source.__name__ if isinstance(source, type) and typing.get_origin(source) is None else repr(source)
    if isinstance(source, type) and callable(model):
        return _described(model, name)
    adapter = source if type(source).__name__ == "TypeAdapter" else None
    if adapter is None:
        try:
            from pydantic import TypeAdapter
        except ModuleNotFoundError:
            raise SourceError(f"the type {name} needs pydantic 2 to be described, which is not installed",
                              hint="pip install 'pydantic>=2', or give its JSON Schema") from None
        adapter = _described(lambda: TypeAdapter(source), name)
    return _described(adapter.json_schema, name)


def _described(describe: Any, name: str) -> Any:
    """What ``describe`` gives. User code runs inside (hooks, forward references), so that anything may be raised."""
    try:
        return describe()
    except Exception as error:
        text = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UnsupportedError(f"the type {name} has no JSON Schema: {text}", keyword=name,
                               hint="annotate it with pydantic.WithJsonSchema; where names are not found, give a TypeAdapter made there"
                               ) from error


def import_type(name: str, folder: str | os.PathLike[str] | None = None) -> Any:
    """The type called ``package.module:Name`` (``Name`` may have dots). Runs the module; ``folder`` is searched before ``sys.path``.

    Raises SourceError: it is no such name, the module cannot be imported, or it has no such type.
    """
    if not _NAME.fullmatch(name):
        raise SourceError(f"{name!r} does not name a type", source="<type>", hint="write package.module:Name")
    module_name, _, path = name.partition(":")
    place = [] if folder is None else [os.path.abspath(folder)]
    sys.path[:0] = place
    try:
        value = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise SourceError(f"the module {module_name} cannot be imported: {type(error).__name__}: {error}", source=name,
                          hint="run from the folder that holds it, and install what it imports") from error
    finally:
        for entry in place:
            if entry in sys.path:
                sys.path.remove(entry)
    for part in path.split("."):
        if not hasattr(value, part):
            known = [each for each in vars(value) if is_type(vars(value)[each]) and not each.startswith("_")]
            raise SourceError(f"{module_name} has no {path}", source=name, hint=f"it has {', '.join(known[:12]) or 'no types'}")
        value = getattr(value, part)
    if not is_type(value):
        raise SourceError(f"{path} is a {type(value).__name__}, not a type", source=name, hint="name a class or a type hint")
    return value
