"""Every code block of the README and the documents is run, in a folder with what the reader is told to have; what cannot be says why.

So is every command of an indented line; of those that need a model, the system's packages or long, the flags and files are checked.

Other tests compare what the examples print (test_cli, test_build, test_diff_command, test_explain_command); here they only have to work.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from tokenizer_cases import byte_level_bpe

from stcc.compiler import compile_json_schema, vocabulary_from_tokenizer
from stcc.formats import Vocabulary
from stcc.runtime import load
from stcc.runtime.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCUMENTS = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if not path.is_symlink())]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "ok": {"type": "boolean"}},
          "required": ["name", "ok"], "additionalProperties": False}
NOT_RUN = {
    ("README.md", "stcc run"): "decodes with SmolLM2, which has to be fetched (test_run)",
    ("command-line.md", "stcc run"): "decodes with SmolLM2 (test_run, test_exact_command)",
    ("command-line.md", "stcc serve"): "serves until it is ended (test_server_api)",
    ("command-line.md", "stcc bench"): "measures a model for minutes (test_bench)",
    ("server.md", "stcc serve"): "serves until it is ended (test_server_api)",
    ("exact-sampling.md", "stcc run"): "decodes with SmolLM2 (test_exact_command)",
    ("decoding.md", "load_model("): "decodes with SmolLM2, which has to be fetched (test_decode)",
    ("blocks.md", "BlockDecoder("): "decodes with a model (test_blocks)",
    ("device.md", "stream_generate"): "decodes with a model (test_processor)",
    ("exact-sampling.md", "ModelTokens("): "decodes with a model (test_exact_model runs it with a small one)",
    ("server.md", "openai.OpenAI("): "needs a server with a model (test_server_api)",
}
"""(document, text of the block or line) -> why it is not run here."""
KNOWN = {"console", "sh", "python", "json", "toml", "yaml", "gbnf", "lark", "text"}


def blocks(document: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(document.read_text(encoding="utf-8"))


def reason(document: Path, text: str) -> str | None:
    return next((why for (name, part), why in NOT_RUN.items() if name == document.name and part in text), None)


CASES = [(document, number) for document in DOCUMENTS for number in range(len(blocks(document)))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A folder for each document, in which its blocks run one after the other."""
    tokenizer = byte_level_bpe()
    found = {}
    for document in DOCUMENTS:
        folder = tmp_path_factory.mktemp(document.stem)
        (folder / "samples").symlink_to(ROOT / "samples")
        for place in ("path/to", "llama3"):
            (folder / place).mkdir(parents=True)
            tokenizer.save(str(folder / place / "tokenizer.json"))
        for name in ("old.schema.json", "new.schema.json"):
            (folder / name).write_text(json.dumps(SCHEMA))
        (folder / "app.policy.yaml").write_text("[]")
        for language, text in blocks(document):
            written = file_of(language, text)
            if written is not None:
                (folder / written).write_text(text)
        found[document] = folder
    return found


def file_of(language: str, text: str) -> str | None:
    """The file that a block is, if it names one in its first line."""
    named = re.match(r'(?:# |\{"\$comment": ")([\w.-]+\.\w+)', text)
    return named[1] if named is not None and language in ("json", "toml", "yaml", "gbnf", "lark") else None


@pytest.mark.parametrize(("document", "number"), CASES, ids=[f"{document.stem}-{number}" for document, number in CASES])
def test_block(document: Path, number: int, folders: dict[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    language, text = blocks(document)[number]
    assert language in KNOWN, "name the block's language"
    monkeypatch.chdir(folders[document])
    monkeypatch.syspath_prepend(str(folders[document]))
    if language == "python":
        why = reason(document, text)
        if why is not None:
            pytest.skip(why)
        names = namespace(document)
        exec(compile(text, f"{document.name}-{number}", "exec", dont_inherit=True), names)
    elif language in ("console", "sh"):
        for command, shown in commands(language, text):
            if reason(document, command) is None:
                run(command, shown)
    else:
        parse(language, text)


def commands(language: str, text: str) -> list[tuple[str, str]]:
    """The commands of a block, and what is shown below each."""
    if language == "sh":
        return [(line, "") for line in text.splitlines() if line.strip()]
    return [(command, shown) for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)]


def run(command: str, shown: str) -> None:
    words = shlex.split(command, comments=True)
    assert words[0] == "stcc", command
    if words[1] == "build" and not Path("stc.toml").exists():
        Path("stc.toml").write_text('[[targets]]\nsource = "samples/person.schema.json"\noutput = "built"\n')
        assert CliRunner().invoke(main, ["build"]).exit_code == 0
    result = CliRunner().invoke(main, words[1:])
    assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exc_info)
    fails = re.search("^(error:|failed |not )", shown, re.MULTILINE) is not None
    expected = (0, 1) if words[1] == "check" else (1,) if fails else (0,)
    assert result.exit_code in expected, (command, result.output)


def parse(language: str, text: str) -> None:
    if language == "json":
        json.loads(text)
    elif language == "yaml":
        yaml.safe_load(text)
    elif language == "toml":
        tomllib.loads(text)


def namespace(document: Path) -> dict[str, Any]:
    """What a program of a document leaves to its reader."""
    vocabulary = vocabulary_from_tokenizer("path/to/tokenizer.json")
    rng = np.random.default_rng(0)
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("search", "answer")]
    names: dict[str, Any] = {"schema": SCHEMA, "vocabulary": vocabulary, "tools": tools,
                             "model": lambda _: rng.standard_normal((1, vocabulary.size)).astype(np.float32)}
    if document.name == "device.md":
        mx = pytest.importorskip("mlx.core", reason="the masks of this block are MLX arrays")
        grammars = [load(compile_json_schema(SCHEMA), vocabulary=vocabulary)] * 2
        names |= {"mx": mx, "grammars": grammars, "sampled": mx.array([0, 0, 0])}
    if document.name == "exact-sampling.md":
        assert CliRunner().invoke(main, ["compile", "samples/policies/refund.policy.yaml", "-o", "refund.stc"]).exit_code == 0
    return names


def test_what_is_not_run_is_there() -> None:
    for name, part in NOT_RUN:
        document = next(path for path in [*DOCUMENTS, WALK] if path.name == name)
        assert any(part in text for _, text in blocks(document)) or any(part in line for line in lines(document)), (name, part)


# -- commands in indented lines, and in the text -----------------------------------------------------------------------------

WALK = ROOT / "samples" / "README.md"
PROGRAMS = ("stcc", "python", "pip", "sh", "mkdocs", "apt-get", "export")


def lines(document: Path) -> list[str]:
    """The commands in indented lines outside blocks."""
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    found = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in found if line.split(" ")[0] in PROGRAMS]


def inline(document: Path) -> list[str]:
    """The commands in the text that are written out: calls of our scripts and of pip."""
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    return re.findall(r"`((?:python|pip install|sh) [^`]*)`", text)


@pytest.mark.parametrize("document", [*DOCUMENTS, WALK, ROOT / "CONTRIBUTING.md"], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_commands_in_the_text(document: Path, folders: dict[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders.get(document, tmp_path))
    if document == WALK:
        (tmp_path / "samples").symlink_to(ROOT / "samples")
        (tmp_path / "path" / "to" / "model-folder").mkdir(parents=True)
        byte_level_bpe().save("path/to/model-folder/tokenizer.json")
    for name in ("qwen3.stv", "model.stv"):
        if not Path(name).exists() and any(name in line for line in lines(document)):
            vocabulary_from_tokenizer(byte_level_bpe()).save(name)
    for line in [*lines(document), *inline(document)]:
        for command in line.split("&&"):
            check(document, shlex.split(command, comments=True))


def check(document: Path, words: list[str]) -> None:
    """Run a command of stcc; of others, and where a model is needed, see that its flags and files are there."""
    if words[0] == "stcc":
        if reason(document, shlex.join(words)) is None:
            run(shlex.join(words), "")
        else:
            parse_command(words)
    elif words[0] == "python":
        script = (ROOT / words[1]).read_text(encoding="utf-8")
        assert all(f'"{word}"' in script for word in words if word.startswith("--")), words
    elif words[0] == "sh":
        assert (ROOT / words[1]).is_file(), words
    elif words[0] == "pip":
        asked = [extra for word in words for group in re.findall(r"\[(.*)\]", word) for extra in group.split(",")]
        assert set(asked) <= PROJECT["project"]["optional-dependencies"].keys(), words


def parse_command(words: list[str]) -> None:
    """That the command knows its flags, and that the files it is given are there (those that earlier commands write are made)."""
    for word in words:
        if re.fullmatch(r"(\w+\.)+(stc|json)", word) and not Path(word).exists():
            Path(word).write_text("")
        if word.endswith("/"):
            Path(word).mkdir(exist_ok=True)
    command = main.get_command(main.make_context("stcc", [words[1]], resilient_parsing=True), words[1])
    assert command is not None, words
    command.make_context(words[1], words[2:]).close()


def test_a_command_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of this file can fail."""
    monkeypatch.chdir(ROOT)
    for text in ("stcc compile samples/none.schema.json -o x", "stcc check samples/person.schema.json --nothing",
                 "python benchmarks/none.py", "python benchmarks/diff.py --nothing", "sh samples/none.sh", "pip install 'stcc[nothing]'",
                 "stcc diff samples/iso_date.regex samples/semver.regex --require equal"):
        with pytest.raises((AssertionError, OSError)):
            check(ROOT / "x.md", shlex.split(text))
    for text in ("stcc run samples/person.schema.json --nothing", "stcc run samples/none.schema.json --prompt x", "stcc nothing"):
        with pytest.raises((click.UsageError, AssertionError)):
            parse_command(shlex.split(text))


def test_the_reader_is_not_asked_for_more(folders: dict[Path, Path]) -> None:
    """The tokenizer that stands for the reader's is a real one."""
    pack = vocabulary_from_tokenizer(str(folders[DOCUMENTS[0]] / "path" / "to" / "tokenizer.json"))
    assert isinstance(pack, Vocabulary) and pack.stop_token_ids
