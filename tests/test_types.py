"""Python types as sources: what pydantic makes of a type and what the compiled grammar takes agree, both ways; and the ways in.

No hint here has an integer in a ``Literal``: pydantic takes the JSON value true for ``Literal[1]``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from stcc.compiler import Options, SourceError, UnsupportedError, compile_json_schema
from stcc.formats import Artifact
from stcc.runtime import load
from stcc.runtime.cli import main


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Tag(BaseModel):
    kind: Literal["tag"]
    label: str = Field(max_length=4)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    colour: Colour | None = None


class Movie(TypedDict):
    title: Annotated[str, Field(min_length=1)]
    year: Annotated[int, Field(ge=1888, lt=2100)]


class Circle(BaseModel):
    kind: Literal["circle"]
    inside: list[Shape] = []


class Square(BaseModel):
    kind: Literal["square"]
    side: Annotated[int, Field(gt=0)]


Shape = Annotated[Circle | Square, Field(discriminator="kind")]
Circle.model_rebuild()

HINTS: dict[str, Any] = {
    "model": Tag, "dataclass": Point, "typed dict": Movie, "enum": Colour, "list of models": list[Tag], "union": Tag | Movie | None,
    "literal": Literal["a", "tag", None], "annotated": Annotated[int, Field(ge=-3, le=12, multiple_of=3)], "tagged": Shape,
    "tuple": tuple[int, str], "dict": dict[str, bool], "adapter": TypeAdapter(list[Point]), "plain": int,
}
WORDS = st.sampled_from(["", "a", "tag", "circle", "square", "red", "long text"])
NUMBERS = st.integers(-4, 14) | st.sampled_from([1888, 2099, 2100])
NAMES = st.sampled_from(["kind", "label", "x", "y", "colour", "title", "year", "inside", "side"])
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | WORDS,
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)
OPTIONS = Options(property_order="any", whitespace="compact")


def takes(grammar: Any, text: str) -> bool:
    matcher = grammar.matcher()
    return bool(matcher.accept_bytes(text.encode()) and matcher.is_accepting())


@functools.cache
def compiled(name: str) -> Any:
    return load(compile_json_schema(HINTS[name], options=OPTIONS))


@functools.cache
def adapter(name: str) -> TypeAdapter[Any]:
    hint = HINTS[name]
    return hint if isinstance(hint, TypeAdapter) else TypeAdapter(hint)


def fits(name: str, text: str) -> bool:
    try:
        adapter(name).validate_json(text, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(HINTS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_pydantic_takes_strictly_is_what_the_grammar_takes(name: str, data: st.DataObject) -> None:
    text = json.dumps(data.draw(VALUES), separators=(",", ":"))
    assert takes(compiled(name), text) == fits(name, text)


@pytest.mark.parametrize("name, value", [
    ("model", Tag(kind="tag", label="abc")), ("dataclass", Point(1, 2, Colour.RED)), ("typed dict", Movie(title="M", year=1927)),
    ("enum", Colour.BLUE), ("list of models", [Tag(kind="tag", label="")]), ("union", None), ("tuple", (1, "a")),
    ("tagged", Circle(kind="circle", inside=[Square(kind="square", side=2), Circle(kind="circle")])),
])
def test_values_that_pydantic_makes_are_taken(name: str, value: Any) -> None:
    text = adapter(name).dump_json(value).decode()
    assert takes(compiled(name), text) and fits(name, text)
    assert not takes(compiled(name), text[:-1])


def test_a_type_and_its_schema_give_the_same_machine() -> None:
    one, other = compile_json_schema(Point), compile_json_schema(TypeAdapter(Point).json_schema())
    assert one.to_bytes() == other.to_bytes()


class Opaque:
    pass


@pytest.mark.parametrize("hint", [Opaque, list[Opaque], Annotated[Opaque, 1]])
def test_a_type_that_pydantic_cannot_describe_is_refused_with_a_way_out(hint: Any) -> None:
    with pytest.raises(UnsupportedError, match="Opaque.*WithJsonSchema"):
        compile_json_schema(hint)


def test_what_is_neither_schema_nor_type_is_refused() -> None:
    with pytest.raises(SourceError, match="not object"):
        compile_json_schema(object())


def test_without_pydantic_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(SourceError, match="Point needs pydantic 2.*pip install"):
        compile_json_schema(Point)


MODULE = """
from dataclasses import dataclass
from typing import Literal
import sys
sys.modules.setdefault("was_imported", sys)

@dataclass
class Order:
    item: Literal["tea", "coffee"]
    count: int

class Plain:
    pass

Names = list[str]
LIMIT = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_types.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_types", raising=False)
    return tmp_path


def test_compile_takes_a_type(folder: Path) -> None:
    before = list(sys.path)
    result = CliRunner().invoke(main, ["compile", "--type", "shop_types:Order", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["kind"] == "json_schema"
    grammar = load(Artifact.load(folder / "Order.stc"))
    assert takes(grammar, '{"item":"tea","count":2}') and not takes(grammar, '{"item":"milk","count":2}')
    assert sys.path == before


@pytest.mark.parametrize("name, code, said", [
    ("shop_types:Missing", 1, "it has Order, Plain"), ("shop_types:LIMIT", 1, "is a int, not a type"),
    ("no_such_module:X", 1, "No module named"), ("shop_types", 1, "package.module:Name"), ("shop_types:Plain", 1, "WithJsonSchema"),
    ("shop_types:Order.item.x", 1, "has no Order.item.x"),
])
def test_a_type_that_cannot_be_taken_is_an_error_that_says_why(folder: Path, name: str, code: int, said: str) -> None:
    result = CliRunner().invoke(main, ["compile", "--type", name])
    assert result.exit_code == code
    assert said in result.output.replace("\n", " ")


def test_a_module_that_fails_or_exits_is_an_error(folder: Path) -> None:
    (folder / "exits_early.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["compile", "--type", "exits_early:X"])
    assert result.exit_code == 1 and "cannot be imported" in result.output


@pytest.mark.parametrize("arguments", [[], ["--type", "a:B", "x.regex"], ["--type", "a:B", "--kind", "regex"]])
def test_wrong_usage_of_type(folder: Path, arguments: list[str]) -> None:
    (folder / "x.regex").write_text("a", encoding="utf-8")
    assert CliRunner().invoke(main, ["compile", *arguments]).exit_code == 2


MANIFEST = """
output = "out"
[[targets]]
type = ["shop_types:Order", "shop_types:Names"]
"""


def build(folder: Path) -> dict[str, Any]:
    code = "import sys; from stcc.runtime.cli import main; sys.argv[0] = 'stcc'; main()"
    run = subprocess.run([sys.executable, "-c", code, "build", str(folder / "stc.toml"), "--json", "--jobs", "1"],
                         capture_output=True, text=True, cwd=folder.parent, check=False)
    return dict(json.loads(run.stdout))


def test_build_takes_types_and_rebuilds_the_one_that_changed(folder: Path) -> None:
    (folder / "stc.toml").write_text(MANIFEST, encoding="utf-8")
    assert sorted(build(folder)["built"]) == ["out/Names.stc", "out/Order.stc"]
    assert sorted(build(folder)["fresh"]) == ["out/Names.stc", "out/Order.stc"]
    (folder / "shop_types.py").write_text(MODULE.replace('"coffee"', '"coffee", "water"'), encoding="utf-8")
    report = build(folder)
    assert (report["built"], report["fresh"]) == (["out/Order.stc"], ["out/Names.stc"])
    assert takes(load(folder / "out" / "Order.stc"), '{"item":"water","count":2}')


@pytest.mark.parametrize("target, said", [
    ('type = "shop_types:Missing"', "targets[0].type"), ('type = "shop_types:Order"\nsource = "x.regex"', "both files and types"),
    ('type = "shop_types:Order"\nkind = "regex"', "targets[0].kind"),
])
def test_a_manifest_with_wrong_types_is_refused(folder: Path, target: str, said: str) -> None:
    (folder / "stc.toml").write_text(f"[[targets]]\n{target}\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["build", str(folder / "stc.toml")])
    assert result.exit_code == 1 and said in result.output.replace("\n", " ")
