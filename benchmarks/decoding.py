"""Decoding speed and policies on SmolLM2: Tables 4, 5 and 7 of the few-path paper, in one process.

    python benchmarks/decoding.py [--quick] [--json OUT] [--rounds N] [--part speed|policies] [--model NAME]

*Speed*: the six schemas of the samples, each in three phrasings, greedy; our loops and llguidance (masks only, and with its fast-forward
tokens) on the same model in the same loop, interleaved. Printed: outputs that a JSON Schema validator accepts, model passes per output
token, the share of tokens that cost no pass, seconds (sums of the least over rounds, output by output) and their ratios; and whether
feeding forced text along, pipelining and running ahead change a token against token-by-token decoding under the same policy (Theorem 19).

*Policies*: how forced text is fed: chosen by the model under the mask, the whole chain at once in whatever split its own text has, or
the tokenizer's (canonical), and canonical with healing. Printed: passes, and how many leaf values of the model's unconstrained answer come
out the same; free answers that are not JSON are left out.

On Linux, give MLX a fast BLAS (docs/decoding.md). Peers take part if they are installed. ``--quick``: two schemas, one phrasing, one round.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema

from stcc.compiler import compile_json_schema
from stcc.runtime import load
from stcc.runtime.decode import DecodingModel, Generation, Healing, Settings, Unconstrained, generate, generate_with
from stcc.runtime.decoding.comparison import Measurement, Task, compare, contenders, summary
from stcc.runtime.decoding.llguidance_matcher import Llguidance, LlguidanceMissing
from stcc.runtime.models import load_model, model_vocabulary

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
NAMES = ("person", "tool_call", "product", "event", "classification", "contact_card")
PHRASINGS = ("{task}", "{task}\n\nAnswer with the JSON object only.", "Read the text and give the facts in it as JSON.\n\n{task}")
ASKS_FOR_JSON = 1
"""The phrasing that the policies are compared on: without it the model's free answer is seldom JSON."""
PEERS = ("llguidance", "llguidance-ff")
MOST_TOKENS, QUICK_TOKENS = 160, 96


def tasks(loaded: Any, quick: bool) -> list[Task]:
    """Every schema in every phrasing."""
    found = []
    for name in NAMES[:2] if quick else NAMES:
        source = json.loads((SAMPLES / f"{name}.schema.json").read_text(encoding="utf-8"))
        grammar = load(compile_json_schema(source), vocabulary=model_vocabulary(loaded))
        text = (SAMPLES / f"{name}.prompt.txt").read_text(encoding="utf-8").strip()
        for number, phrasing in enumerate(PHRASINGS[:1] if quick else PHRASINGS):
            found.append(Task(f"{name} {number + 1}", loaded.prompt_tokens(phrasing.format(task=text)), grammar, source))
    return found


def is_valid(task: Task, text: bytes) -> bool:
    """Judged by the jsonschema library."""
    try:
        return bool(jsonschema.Draft202012Validator(task.source).is_valid(json.loads(text)))
    except ValueError:
        return False


def tell(text: str) -> None:
    print(f"\r{text:60}", end="", file=sys.stderr, flush=True)


# -- speed -----------------------------------------------------------------------------------------------------------------


def speed(model: DecodingModel, work: list[Task], peer: Llguidance | None, rounds: int, limit: int) -> dict[str, Any]:
    """Tables 4 and 5, and the identities."""
    names = ("sync", "pipelined", "eager", *(PEERS if peer else ()))
    measured = compare(model, work, contenders(names, model, limit, peer), rounds, tell)
    by_name = {task.name: task for task in work}
    rows = summary(measured)
    for row in rows:
        row["valid"] = sum(is_valid(by_name[each.task], each.text) for each in measured if each.contender == row["engine"])
    return {"engines": rows, "identical": identities(model, work, measured, limit),
            "outputs": [{"engine": each.contender, "task": each.task, "tokens": len(each.tokens), "passes": each.passes,
                         "seconds": each.seconds, "text": each.text.decode("utf-8", "replace")} for each in measured]}


def identities(model: DecodingModel, work: list[Task], measured: list[Measurement], limit: int) -> dict[str, str]:
    """How many outputs of each loop have the tokens of token-by-token decoding."""
    own = {(each.task, each.contender): each.tokens for each in measured}
    same = dict.fromkeys(("sync", "pipelined", "eager"), 0)
    for task in work:
        tell(f"token by token, {task.name}")
        reference = generate(model, task.grammar, task.prompt_tokens, max_tokens=limit, forcing="step").finish().tokens
        for name in same:
            same[name] += own[task.name, name] == reference
    return {name: f"{count}/{len(work)}" for name, count in same.items()}


# -- policies --------------------------------------------------------------------------------------------------------------


class WholeChain:
    """Commit-all: every forced byte is written at once, in the split that the chain's own text has."""

    def __init__(self, task: Task, encode: Any) -> None:
        self._matcher, self._encode = task.grammar.matcher(), encode
        self.fill_next_token_bitmask, self.accept_token = self._matcher.fill_next_token_bitmask, self._matcher.accept_token
        self.is_accepting = self._matcher.is_accepting

    def forced_tokens(self) -> list[int]:
        """The tokens of the forced bytes, as far as they are whole characters."""
        found: list[int] = list(self._encode(self._matcher.forced_bytes().decode("utf-8", "ignore")))
        return found


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Path -> leaf value."""
    if isinstance(value, dict):
        return {key: leaf for name, member in value.items() for key, leaf in leaves(member, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {key: leaf for number, item in enumerate(value) for key, leaf in leaves(item, f"{path}/{number}").items()}
    return {path: value}


def first_object(text: bytes) -> Any:
    """The first JSON object in a free answer, or None."""
    decoded = text.decode("utf-8", "replace")
    start = decoded.find("{")
    try:
        return json.JSONDecoder().raw_decode(decoded[start:])[0] if start >= 0 else None
    except ValueError:
        return None


def policies(model: DecodingModel, loaded: Any, work: list[Task], peer: Llguidance | None, limit: int) -> list[dict[str, Any]]:
    """Table 7: passes, and agreement with the free answer, of each way to feed forced text."""
    vocabulary = model_vocabulary(loaded)

    def encode(text: str) -> list[int]:
        return list(loaded.tokenizer.encode(text, add_special_tokens=False))

    healing, settings = Healing(encode, vocabulary), Settings(max_tokens=limit)

    def other(task: Task, constraint: Any) -> Generation:
        return generate_with(model, constraint, vocabulary, task.prompt_tokens, settings)

    def ours(task: Task, **options: Any) -> Generation:
        return generate(model, task.grammar, task.prompt_tokens, max_tokens=limit, **options)

    ways: dict[str, Any] = {
        "model chooses the split": lambda task: ours(task, forcing="off"),
        "whole chain, any split": lambda task: other(task, WholeChain(task, encode)),
        "canonical (ours)": ours, "canonical, healed": lambda task: ours(task, healing=healing),
    }
    if peer is not None:
        ways |= {"llguidance, mask only": lambda task: other(task, peer.matcher(task.source)),
                 "llguidance, fast-forward": lambda task: other(task, peer.matcher(task.source, fast_forward=True))}
    rows = {name: {"policy": name, "passes": 0, "tokens": 0, "valid": 0, "same": 0, "of": 0, "answers": 0} for name in ways}
    for task in work:
        tell(f"free answer, {task.name}")
        free = first_object(other(task, Unconstrained(vocabulary)).finish().text)
        for name, way in ways.items():
            tell(f"{name}, {task.name}")
            done, row = way(task).finish(), rows[name]
            row["passes"] += done.statistics.passes
            row["tokens"] += len(done.tokens)
            row["valid"] += is_valid(task, done.text)
            if isinstance(free, dict):
                expected = leaves(free)
                found = leaves(first_object(done.text) or {})
                row["same"] += sum(path in found and found[path] == value for path, value in expected.items())
                row["of"] += len(expected)
                row["answers"] += 1
    return list(rows.values())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=("speed", "policies"), help="one of the two only")
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    loaded = load_model(options.model)
    model, limit = DecodingModel(loaded.model), QUICK_TOKENS if options.quick else MOST_TOKENS
    try:
        peer = Llguidance((loaded.vocabulary_source / "tokenizer.json").read_text(encoding="utf-8"), model_vocabulary(loaded))
    except LlguidanceMissing as error:
        peer = None
        print(error, file=sys.stderr)
    work = tasks(loaded, options.quick)
    report: dict[str, Any] = {"model": loaded.name}
    if options.part != "policies":
        report["speed"] = speed(model, work, peer, 1 if options.quick else options.rounds, limit)
        show_speed(report["speed"])
    if options.part != "speed":
        report["policies"] = policies(model, loaded, work if options.quick else work[ASKS_FOR_JSON::len(PHRASINGS)], peer, limit)
        show_policies(report["policies"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


def show_speed(report: dict[str, Any]) -> None:
    """Print Tables 4 and 5."""
    rows = report["engines"]
    fastest = rows[0]["seconds"]
    tell("")
    print(f"\r{'engine':16}{'valid':>8}{'tokens':>8}{'passes':>8}{'per token':>11}{'forced':>8}{'ms/pass':>9}{'host ms':>9}"
          f"{'seconds':>9}{'x sync':>8}")
    for row in rows:
        print(f"{row['engine']:16}{row['valid']:4}/{row['outputs']:<3}{row['tokens']:8}{row['passes']:8}{row['passes_per_token']:11.3f}"
              f"{row['forced'] / row['tokens']:8.0%}{row['ms_per_pass']:9.1f}{row['constraint_ms_per_pass']:9.2f}{row['seconds']:9.2f}"
              f"{row['seconds'] / fastest:8.2f}")
    print("same tokens as token by token: " + ", ".join(f"{name} {count}" for name, count in report["identical"].items()), flush=True)


def show_policies(rows: list[dict[str, Any]]) -> None:
    """Print Table 7."""
    tell("")
    print(f"\r{'how forced text is fed':28}{'agreement':>10}{'values':>10}{'answers':>9}{'passes':>8}{'tokens':>8}{'valid':>7}")
    for row in rows:
        agreement = f"{row['same'] / row['of']:.2f}" if row["of"] else "-"
        print(f"{row['policy']:28}{agreement:>10}{row['same']:>5}/{row['of']:<4}{row['answers']:9}{row['passes']:8}{row['tokens']:8}"
              f"{row['valid']:7}")


if __name__ == "__main__":
    main()
