"""What a target of a manifest lists: files, by name or by pattern, or Python types.

In: a ``[[targets]]`` table and the manifest's folder. Out: one ``Entry`` an artifact. Types are imported here, and only where a target
names them. Cost: one listing of each pattern.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stcc.compiler.building.tables import Table
from stcc.compiler.errors import CompileError
from stcc.compiler.sources import KINDS, source_kind, type_text

_ENDINGS = (".schema.json", ".tools.json", ".policy.yaml", ".policy.yml", ".json", ".regex")
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
    """

    source: Path
    stem: str
    kind: str
    alone: bool
    text: bytes | None = None


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


def existing(table: Table, folder: Path, key: str, text: str) -> Path:
    """The file or folder called ``text``; SourceError, naming ``key``, if there is none."""
    path = Path(os.path.normpath(folder / text))
    if not path.exists():
        raise table.error(key, f"there is no file {text}", "paths are relative to the manifest")
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
    return [Entry(source, _stem(source, inner), kind or _kind(table, source), alone) for source, inner in sources]


def _sources(table: Table, patterns: list[str], excluded: list[str], folder: Path) -> list[tuple[Path, str]]:
    """Source files, and the path of each below the fixed part of its pattern."""
    dropped = {path for pattern in excluded for path in folder.glob(pattern)}
    found: dict[Path, str] = {}
    for pattern in patterns:
        if Path(pattern).is_absolute() or not _is_pattern(pattern):
            path = existing(table, folder, "source", pattern)
            if not path.is_file():
                raise table.error("source", f"{pattern} is not a file", f'to take what is in a folder, write "{pattern}/*.schema.json"')
            found[path] = path.name
            continue
        fixed = folder.joinpath(*_fixed_part(pattern))
        matched = [path for path in folder.glob(pattern) if path.is_file() and path not in dropped]
        if not matched:
            raise table.error("source", f"no file matches {pattern}", "patterns are relative to the manifest; ** takes folders")
        found.update((Path(os.path.normpath(path)), path.relative_to(fixed).as_posix()) for path in matched)
    return sorted(found.items())


def _stem(source: Path, inner: str) -> str:
    """``inner`` without the ending that tells its kind."""
    return next((inner[:-len(ending)] for ending in _ENDINGS if inner.lower().endswith(ending) and len(source.name) > len(ending)),
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
