"""What holds of the repository as a whole: the rooms' imports, the examples in docstrings, the version, what a deploy needs."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stcc.compiler
import stcc.formats
import stcc.runtime
from stcc.compiler.pipeline import VERSION

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {"formats": set(), "compiler": {"formats"}, "runtime": {"formats"}}
SEAM = ROOT / "runtime" / "seam.py"


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("stcc.")}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_import_downwards_only(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        if path != SEAM:
            assert imported_rooms(path) <= ROOMS[room] | {room}, path


def modules() -> Iterator[str]:
    for package in (stcc.formats, stcc.compiler, stcc.runtime):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield info.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


def test_one_version() -> None:
    assert importlib.metadata.version("stcc") == VERSION


def test_every_package_is_listed() -> None:
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("*/**/__init__.py")):
        parts = path.parent.relative_to(ROOT).parts
        if parts[0] in ROOMS:
            assert f'"{".".join(("stcc", *parts))}"' in listed, path


def test_the_runtime_needs_numpy_and_msgpack_only() -> None:
    code = "import sys, stcc.runtime; print(sorted({name.split('.')[0] for name in sys.modules} & " \
           "{'click', 'rich', 'mlx', 'torch', 'transformers', 'tokenizers', 'interegular', 'outlines_core', 'referencing', 'hypothesis'}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
