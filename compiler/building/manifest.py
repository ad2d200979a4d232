"""The manifest: ``stc.toml``, or ``[tool.stcc]`` in pyproject.toml, read into targets.

    output = "artifacts"                     # folder of the .stc files; default: beside the manifest
    vocabularies = ["qwen3.stv"]             # packs, or tokenizer files and folders
    [options]                                # of stcc.compiler.Options
    whitespace = "compact"
    [budgets]
    max_bytes = 65536
    [[targets]]
    source = "schemas/*.schema.json"         # a file, a pattern, or a list of both

In: a file. Out: a ``Manifest`` of ``Target`` values, one for each source file, sorted by output, with all defaults applied. Afterwards no
two targets share an output, nothing that is written is an input, and every key of the file was understood. Nothing is compiled. Paths are
relative to the manifest's folder. Cost: one listing of each pattern.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from stcc.compiler.building.budgets import Budgets
from stcc.compiler.building.entries import Entry, existing, list_entries
from stcc.compiler.building.tables import Table
from stcc.compiler.errors import SourceError
from stcc.compiler.options import Options
from stcc.compiler.sources import ABOUT_JSON, DIALECTS, Selection, read_source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = ("stc.toml", "pyproject.toml")
"""What a manifest may be called, in the order in which a folder is searched."""
_LIMITS = {"max_states": int, "max_depth": int, "time_limit": float}
_ABOUT_JSON = ("whitespace", "additional_properties", "property_order", "formats", "content", "unenforced")


@dataclass(frozen=True)
class Target:
    """One source file and the artifact that it is built to.

    Attributes:
        source: the file.
        output: the ``.stc`` file.
        name: the output relative to the manifest's folder, with ``/``; what reports call the target.
        kind: one of ``sources.KINDS``.
        options: how it is compiled, without documents.
        documents: URI -> file, for remote references.
        vocabularies: packs and tokenizers to bind to, in the order given.
        budgets: what the artifact may cost.
        text: what to compile where it does not stand in a file, as for a Python type; ``source`` only names it then.
        selection: the part of an OpenAPI document.
    """

    source: Path
    output: Path
    name: str
    kind: str
    options: Options
    documents: Mapping[str, Path]
    vocabularies: tuple[Path, ...]
    budgets: Budgets
    text: bytes | None = None
    selection: Selection | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that shape the artifact, vocabularies aside."""
        return (*((self.source,) if self.text is None else ()), *self.documents.values())


@dataclass(frozen=True)
class Manifest:
    """What is to be built.

    Attributes:
        file: the manifest.
        targets: sorted by name.
        cache: folder of what was built before.
        report: where to write the report (JSON), if anywhere.
        summary: where to write the summary (Markdown), if anywhere.
    """

    file: Path
    targets: tuple[Target, ...]
    cache: Path
    report: Path | None
    summary: Path | None


def find_manifest(folder: Path) -> Path:
    """The nearest manifest in ``folder`` or above it. SourceError if there is none."""
    for place in (folder, *folder.resolve().parents):
        for name in NAMES:
            file = place / name
            if file.is_file() and (name != "pyproject.toml" or "stcc" in _tools(_parsed(file), file).values):
                return file
    raise SourceError("there is no manifest here or above", source=os.fspath(folder),
                      hint="write a stc.toml with [[targets]], or a [tool.stcc] table in pyproject.toml")


def read_manifest(file: Path) -> Manifest:
    """The manifest in ``file``.

    Raises:
        SourceError: it is not TOML, a key is unknown or of the wrong type, a source is missing, or two targets share an output.
        OSError: it cannot be read.
    """
    document = _parsed(file)
    source = os.fspath(file)
    if file.name == "pyproject.toml":
        tools = _tools(document, file)
        if "stcc" not in tools.values:
            raise SourceError("it has no [tool.stcc] table", source=source, hint="add one, or name a stc.toml")
        root = tools.table("stcc")
    else:
        root = Table(document, source)
    reader = _Reader(root, file.parent)
    targets = sorted(reader.targets(), key=lambda target: target.name)
    manifest = Manifest(file, tuple(targets), reader.optional_path("cache") or reader.path(".stcc-cache"), reader.optional_path("report"),
                        reader.optional_path("summary"))
    root.finish()
    verify_paths(manifest)
    return manifest


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_source(file).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"it is not TOML: {error}", source=os.fspath(file), hint="correct its syntax") from None


def _tools(document: dict[str, Any], file: Path) -> Table:
    """The table ``tool`` of a pyproject.toml."""
    return Table(document, os.fspath(file)).table("tool")


class _Reader:
    """Targets of a root table; values that a target leaves out come from the root."""

    def __init__(self, root: Table, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.output = root.path("output") or "."
        self.options = _option_values(root.table("options"))
        self.budgets = Budgets.read(root.table("budgets"), Budgets())
        self.vocabularies = root.strings("vocabularies") or []
        self.documents = self._documents(root)

    def path(self, text: str) -> Path:
        return Path(os.path.normpath(self.folder / text))

    def optional_path(self, key: str) -> Path | None:
        text = self.root.path(key)
        return None if text is None else self.path(text)

    def targets(self) -> list[Target]:
        tables = self.root.tables("targets")
        if not tables:
            raise self.root.error("targets", "there are no targets", 'add a [[targets]] with source = "schemas/*.schema.json"')
        return [target for table in tables for target in self._targets_of(table)]

    def _documents(self, table: Table) -> dict[str, Path]:
        listed = table.table("schemas")
        return {uri: existing(listed, self.folder, uri, listed.get(uri, str)) for uri in listed.values}

    def _targets_of(self, table: Table) -> list[Target]:
        entries = list_entries(table, self.folder)
        own = _option_values(table.table("options"))
        budgets = Budgets.read(table.table("budgets"), self.budgets)
        listed = table.strings("vocabularies")
        chosen = self.vocabularies if listed is None else listed
        vocabularies = tuple(existing(table, self.folder, "vocabularies", text, folders=True) for text in chosen)
        documents = {**self.documents, **self._documents(table)}
        output = table.path("output")
        table.finish()
        found, used = [], set()
        for entry in entries:
            used |= own.keys() & _meaning_something(entry.kind)
            target = self._output(entry, output)
            found.append(Target(entry.source, target, self._name(target), entry.kind, _options(table, entry.kind, self.options, own),
                                documents, vocabularies, budgets, entry.text, entry.selection))
        for key in own:
            if key not in used:
                raise table.error(f"options.{key}", f"it means nothing for {found[0].kind} sources", "leave it out")
        return found

    def _output(self, entry: Entry, output: str | None) -> Path:
        """Where an entry's artifact goes: the target's ``output`` if that names a file, else its stem in the output folder."""
        if output is not None and output.endswith(".stc") and entry.alone:
            return self.path(output)
        return self.path(os.path.join(self.output if output is None else output, entry.stem + ".stc"))

    def _name(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.folder)).as_posix()


def _option_values(table: Table) -> dict[str, Any]:
    """The options that a table gives, each of its type."""
    known = [field.name for field in fields(Options) if field.name != "schemas"]
    values = {name: table.get(name, _LIMITS.get(name, str)) for name in known}
    table.finish()
    return {name: value for name, value in values.items() if value is not None}


def _meaning_something(kind: str) -> set[str]:
    """The options that shape what sources of ``kind`` compile to."""
    about_json = _ABOUT_JSON if kind in ABOUT_JSON else ()
    return {*_LIMITS, *about_json, *(("dialect",) if kind in DIALECTS else ())}


def _options(table: Table, kind: str, shared: dict[str, Any], own: dict[str, Any]) -> Options:
    """The options of one source; those of the whole manifest apply where they mean something."""
    used = _meaning_something(kind)
    values = {name: value for name, value in {**shared, **own}.items() if name in used}
    known = DIALECTS.get(kind, ())
    if values.get("dialect", "") not in ("", *known):
        if "dialect" in own:
            raise table.error("options.dialect", f"{own['dialect']} is not a dialect of {kind}", f"known are {', '.join(known)}")
        del values["dialect"]
    if kind == "tools":
        values.setdefault("whitespace", "spaced")  # as chat templates write it
    try:
        return Options(**values)
    except SourceError as error:
        raise table.error("options", error.message, error.hint or "see stcc compile --help") from None


def verify_paths(manifest: Manifest) -> None:
    """Nothing that is written is read by the build, or written twice. Links are followed.

    Raises:
        SourceError: two targets have one output; an output, the report or the summary is an input, the manifest, or another of them.
    """
    paths = {manifest.file, *(path for target in manifest.targets for path in (*target.files, *target.vocabularies))}
    read = {os.path.realpath(path) for path in paths}
    taken: dict[str, str] = {}
    for target in manifest.targets:
        source = os.fspath(target.source) if target.text is not None else os.path.relpath(target.source, manifest.file.parent)
        _take(manifest, target.output, "targets", source, target.name, read, taken)
    for key, path in (("report", manifest.report), ("summary", manifest.summary)):
        if path is not None and (path.is_file() or not path.exists()):  # several may go to a device or a pipe
            _take(manifest, path, key, f"the {key}", path.name, read, taken)


def _take(manifest: Manifest, path: Path, pointer: str, what: str, name: str, read: set[str], taken: dict[str, str]) -> None:
    """Note that ``what`` is written to ``path``. SourceError if something else is, or if it is read."""
    real, source = os.path.realpath(path), os.fspath(manifest.file)
    if real in taken:
        raise SourceError(f"{taken[real]} and {what} are both written to {name}", source=source, pointer=pointer,
                          hint="give one an output of its own")
    if real in read:
        raise SourceError(f"{name} is read by this build", source=source, pointer=pointer, hint="give another output")
    taken[real] = what


def with_documents(target: Target) -> Options:
    """The target's options, with its documents read."""
    return replace(target.options, schemas={uri: read_source(path) for uri, path in target.documents.items()})
