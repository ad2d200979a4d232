"""What a target of a manifest lists: files, by name or by pattern, or Python types.

In: a ``[[targets]]`` table and the manifest's folder. Out: one ``Entry`` an artifact: of an OpenAPI document, one a request body and one a
response of each operation, unless the table says which. Types are imported here, and only where a target names them. Cost: one listing of
each pattern, one reading of each OpenAPI document.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from stcc.compiler.building.tables import Table
from stcc.compiler.errors import CompileError
from stcc.compiler.frontends.openapi import PARTS, Operation, list_operations
from stcc.compiler.sources import ENDINGS, KINDS, Selection, read_source, source_kind, type_text

_MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class Entry:
    """One thing to compile.

    Attributes:
        source: the file, or a name for ``text``.
        stem: the path of its artifact below the output folder, without ``.stc``.
        kind: one of ``sources.KINDS``.
        alone: whether the target lists nothing else, so that its ``output`` may be a file.
        text: what to compile where that is not a file's contents.
        selection: the part of an OpenAPI document.
    """

    source: Path
    stem: str
    kind: str
    alone: bool
    text: bytes | None = None
    selection: Selection | None = None


def list_entries(table: Table, folder: Path) -> list[Entry]:
    """What the target ``table`` lists, in a fixed order. SourceError where something is missing or cannot be read."""
    names = table.strings("type")
    patterns = table.strings("source")
    if bool(names) == bool(patterns):
        raise table.error("source", "the target lists both files and types" if names else "the target has no source",
                          'give source = "schemas/*.schema.json" or type = "package.module:Name"')
    if names:
        return _types(table, names, folder)
    kind = table.get("kind", str)
    if kind is not None and kind not in KINDS:
        raise table.error("kind", f"{kind!r} is not a kind of source", f"known are {', '.join(KINDS)}")
    return _files(table, patterns or [], kind, folder)


def existing(table: Table, folder: Path, key: str, text: str, *, folders: bool = False) -> Path:
    """The file called ``text``, or the folder where ``folders`` allows one; SourceError, naming ``key``, if there is none.

    A pipe or a device is no file: what is read from it would not be there again.
    """
    path = Path(os.path.normpath(folder / text))
    if not path.exists():
        raise table.error(key, f"there is no file {text}", "paths are relative to the manifest")
    if not path.is_file() and not (folders and path.is_dir()):
        hint = f'to take what is in a folder, write "{text}/*.schema.json"' if key == "source" else "give the path of a file"
        raise table.error(key, f"{text} is not a file", hint)
    return path


def _types(table: Table, names: list[str], folder: Path) -> list[Entry]:
    found = []
    for name in names:
        try:
            text = type_text(name, folder)
        except CompileError as error:
            raise table.error("type", f"{name}: {error.message}", error.hint) from error
        found.append(Entry(Path(name), name.rpartition(":")[2], "json_schema", len(names) == 1, text))
    return found


def _files(table: Table, patterns: list[str], kind: str | None, folder: Path) -> list[Entry]:
    sources = _sources(table, patterns, table.strings("exclude") or [], folder)
    alone = len(sources) == 1 and not any(_is_pattern(text) for text in patterns)
    found: list[Entry] = []
    for source, inner in sources:
        entry = Entry(source, _stem(source, inner), kind or _kind(table, source), alone)
        found += _operations(table, entry) if entry.kind == "openapi" else [entry]
    return found


def _operations(table: Table, entry: Entry) -> list[Entry]:
    """The parts of an OpenAPI document that the target asks for; their artifacts lie in a folder called after the document."""
    wanted, left_out = table.strings("operations") or ["*"], table.strings("exclude_operations") or []
    parts = table.strings("parts") or ["request", "response"]
    for part in parts:
        if part not in PARTS:
            raise table.error("parts", f"{part!r} is no part of an operation", f"known are {', '.join(PARTS)}")
    try:
        operations = list_operations(read_source(entry.source))
    except CompileError as error:
        raise table.error("source", f"{entry.source.name}: {error.pointer}: {error.message}", error.hint) from None
    if not operations:
        raise table.error("source", f"{entry.source.name} has no operations", "list its paths and their methods, or leave the document out")
    for pattern in (*wanted, *left_out):
        if not any(fnmatchcase(operation.name, pattern) for operation in operations):
            raise table.error("operations", f"no operation is called {pattern}", f"see stcc compile --list-operations {entry.source.name}")
    chosen = [selection for operation in operations for selection in _selections(operation, parts)
              if any(fnmatchcase(operation.name, pattern) for pattern in wanted)
              and not any(fnmatchcase(operation.name, pattern) for pattern in left_out)]
    if not chosen:
        raise table.error("parts", f"{entry.source.name} has nothing to compile", "list other parts or operations")
    return [replace(entry, stem=f"{entry.stem}/{selection.stem}", selection=selection, alone=entry.alone and len(chosen) == 1)
            for selection in chosen]


def _selections(operation: Operation, parts: list[str]) -> list[Selection]:
    """What one operation has of ``parts``."""
    found = [Selection(operation.name, "request")] if "request" in parts and operation.has_request else []
    found += [Selection(operation.name, "response", status) for status in operation.statuses] if "response" in parts else []
    return found + ([Selection(operation.name, "parameters")] if "parameters" in parts and operation.has_parameters else [])


def _sources(table: Table, patterns: list[str], excluded: list[str], folder: Path) -> list[tuple[Path, str]]:
    """Source files, and the path of each below the fixed part of its pattern."""
    for pattern in excluded:
        _check_pattern(table, "exclude", pattern)
    dropped = {path for pattern in excluded for path in folder.glob(pattern)}
    found: dict[Path, str] = {}
    for pattern in patterns:
        if not _is_pattern(pattern):
            path = existing(table, folder, "source", pattern)
            found[path] = path.name
            continue
        _check_pattern(table, "source", pattern)
        fixed = folder.joinpath(*_fixed_part(pattern))
        matched = [path for path in folder.glob(pattern) if path.is_file() and path not in dropped]
        if not matched:
            raise table.error("source", f"no file matches {pattern}", "patterns are relative to the manifest; ** takes folders")
        found.update((Path(os.path.normpath(path)), path.relative_to(fixed).as_posix()) for path in matched)
    for path in found:
        _check_name(table, path)
    return sorted(found.items())


def _check_pattern(table: Table, key: str, pattern: str) -> None:
    """SourceError for a pattern that the versions of Python read in different ways, or refuse."""
    if Path(pattern).is_absolute():
        raise table.error(key, f"the pattern {pattern} is absolute", "patterns are relative to the manifest")
    if any("**" in part and part != "**" for part in pattern.split("/")):
        raise table.error(key, f"{pattern}: ** stands for folders and is a whole part of a path", "write **/*.schema.json")
    if "\0" in pattern:
        raise table.error(key, f"{pattern}: a path has no NUL", "take it out")


def _check_name(table: Table, path: Path) -> None:
    """SourceError for a name that is not UTF-8: artifacts and reports could not hold it."""
    try:
        path.name.encode("utf-8")
    except UnicodeEncodeError:
        raise table.error("source", f"the name {os.fsencode(path.name)!r} is not UTF-8 text", "rename the file") from None


def _stem(source: Path, inner: str) -> str:
    """``inner`` without the ending that tells its kind."""
    return next((inner[:-len(ending)] for ending in ENDINGS if inner.lower().endswith(ending) and len(source.name) > len(ending)),
                os.path.splitext(inner)[0])


def _is_pattern(text: str) -> bool:
    return not _MAGIC.isdisjoint(text)


def _fixed_part(pattern: str) -> list[str]:
    """The leading folders of a pattern that hold no wildcard."""
    parts = pattern.split("/")[:-1]
    first = next((place for place, part in enumerate(parts) if _is_pattern(part)), len(parts))
    return parts[:first]


def _kind(table: Table, source: Path) -> str:
    try:
        return source_kind(source)
    except CompileError as error:
        raise table.error("source", f"{source.name}: {error.message}", "give the target a kind") from None
