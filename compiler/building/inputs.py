"""What a target reads, as digests, and the key under which its artifact is cached.

In: targets. Out: SHA-256 of every file that shapes an artifact, each read once a build, and a key over all of them, the options and the
compiler. Equal keys mean equal artifacts. The compiler is known by the text of its modules, so that a change of it rebuilds whatever the
version says; by the Unicode tables of the interpreter, which patterns read; and by the packages that it asks.

Cost: one pass over the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import stcc.compiler
import stcc.formats
from stcc.compiler.building.manifest import Target
from stcc.compiler.errors import SourceError
from stcc.compiler.pipeline import VERSION
from stcc.formats import Vocabulary
from stcc.formats.container import write_atomic

LAYOUT = 1
"""Version of the cache's own layout and of what goes into a key."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja")
"""What ``vocabulary_from_tokenizer`` reads of a folder."""
_PACKAGES = ("cel-python", "interegular", "jsonschema-specifications", "lark", "outlines-core", "pyyaml", "referencing", "tokenizers")


@lru_cache(maxsize=1)
def compiler_identity() -> str:
    """SHA-256, hex, of everything but its input that decides what the compiler writes."""
    digest = hashlib.sha256(f"{VERSION} {unicodedata.unidata_version}".encode())
    for package in _PACKAGES:
        digest.update(f"{package} {_version(package)}\n".encode())
    for room in (stcc.compiler, stcc.formats):
        for folder in room.__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


class Inputs:
    """The files of one build; each is read and hashed once.

    Args:
        vocabularies: folder for the packs of tokenizers that are given as such.
    """

    def __init__(self, vocabularies: Path) -> None:
        self._vocabularies = vocabularies
        self._digests: dict[Path, str] = {}
        self._packs: dict[Path, Path] = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of a file, hex. OSError if it cannot be read."""
        found = self._digests.get(path)
        if found is None:
            found = self._digests[path] = file_digest(path)
        return found

    def pack(self, path: Path) -> Path:
        """The ``.stv`` of a vocabulary: itself, or what the tokenizer there was packed to.

        Raises:
            CompileError: it is no tokenizer.
            OSError: it cannot be read.
        """
        if path.name.endswith(".stv"):
            return path
        found = self._packs.get(path)
        if found is None:
            found = self._packs[path] = self._packed(path)
        return found

    def _packed(self, path: Path) -> Path:
        from stcc.compiler.vocabularies import vocabulary_from_tokenizer

        folder = path if path.is_dir() else path.parent
        read = [folder / name for name in TOKENIZER_FILES] if path.is_dir() or path.name == TOKENIZER_FILES[0] else [path]
        digest = hashlib.sha256(compiler_identity().encode() + folder.resolve().name.encode())
        for file in read:
            if file.is_file():
                digest.update(f"{file.name} {self.digest(file)}\n".encode())
        pack = self._vocabularies / f"{digest.hexdigest()}.stv"
        if not pack.is_file():
            data = vocabulary_from_tokenizer(path).to_bytes()
            pack.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(pack, data)
        return pack

    def packs(self, target: Target) -> tuple[Path, ...]:
        """The packs that ``target`` is bound to; SourceError where two have one fingerprint."""
        packs = tuple(self.pack(path) for path in target.vocabularies)
        digests = [self.digest(pack) for pack in packs]
        if len(set(digests)) < len(digests):
            raise SourceError("a vocabulary is listed twice", source=target.name, hint="leave one out")
        return packs

    def key(self, target: Target) -> str:
        """The cache key of ``target``, hex.

        Raises:
            CompileError: a vocabulary is no tokenizer.
            OSError: a file cannot be read.
        """
        options = target.options
        parts = {
            "layout": LAYOUT, "compiler": compiler_identity(), "kind": target.kind, "name": target.source.name,
            "source": self.digest(target.source) if target.text is None else hashlib.sha256(target.text).hexdigest(),
            "options": {**options.recorded(), "max_states": options.max_states, "max_depth": options.max_depth},
            "selection": None if target.selection is None else vars(target.selection),
            "documents": {uri: self.digest(path) for uri, path in target.documents.items()},
            "vocabularies": [self.digest(pack) for pack in self.packs(target)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, hex. OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@lru_cache(maxsize=8)
def open_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in a ``.stv``; kept open by the process."""
    return Vocabulary.load(path)
