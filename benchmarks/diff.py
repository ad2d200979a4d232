"""Comparisons: 300 pairs of schemas and of patterns whose relation is known otherwise, and what comparing them costs.

    python benchmarks/diff.py [--quick] [--json OUT] [--pairs 300] [--patterns 300] [--instances 20] [--cases FILE.jsonl[.gz]]

Schemas: made by a change that widens, narrows, does both or does nothing (a property made optional, a value added, a bound moved,
recursion changed, ...; half of them recursive). Checked for each: the relation is the one it was made with; the shortest texts are valid
for the one and invalid for the other, as jsonschema says; random instances, valid and not, never contradict it. Patterns: random; relation
and length of the shortest texts are checked with interegular. ``--cases`` (lines of MaskBench): every schema against itself with its
enums reordered, and against its neighbour, for times at real sizes. ``--quick`` takes a fifth.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import interegular
import jsonschema

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from schema_pairs import SchemaPair, instance, pairs, shortest

from stcc.compiler import CompileError, Options, compile_json_schema, compile_regex
from stcc.compiler.comparison.comparison import Comparison, compare_machines
from stcc.compiler.stepping import accepts
from stcc.formats.machine import Machine

ATOMS = ("a", "b", "c", "[ab]", "[^a]", "ab", "(?:a|bc)")
REPEATS = ("*", "?", "+", "{2}", "{1,3}")
RELATIONS = {(False, False): "equal", (False, True): "wider", (True, False): "narrower", (True, True): "incomparable"}


class Tally:
    """What was compared: relations, milliseconds, disagreements."""

    def __init__(self) -> None:
        self.relations: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self.wrong: list[str] = []
        self.inexact = self.checked = 0

    def compare(self, old: Machine, new: Machine) -> Comparison:
        """Compare, and count."""
        started = time.perf_counter()
        found = compare_machines(old, new)
        self.milliseconds.append(1e3 * (time.perf_counter() - started))
        self.relations[found.relation] += 1
        self.inexact += not found.exact
        return found

    def expect(self, holds: bool, text: str) -> None:
        """Count a check; keep the text of one that fails."""
        self.checked += 1
        if not holds:
            self.wrong.append(text)

    def data(self) -> dict[str, Any]:
        """As plain data."""
        times = sorted(self.milliseconds) or [0.0]
        return {"pairs": len(self.milliseconds), "relations": dict(self.relations), "inexact": self.inexact, "checks": self.checked,
                "wrong": len(self.wrong), "median_ms": statistics.median(times), "p99_ms": times[int(0.99 * (len(times) - 1))],
                "most_ms": times[-1]}


def valid(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def schemas(count: int, instances: int, tally: Tally) -> None:
    """Pairs of schemas, against how they were made, jsonschema and random instances."""
    chance = random.Random(0)
    for pair in itertools.islice(pairs(0), count):
        machines = compile_json_schema(pair.old).machine, compile_json_schema(pair.new).machine
        found = tally.compare(*machines)
        tally.expect(found.relation == pair.relation and found.exact, f"{pair.change}: {found.relation}, made {pair.relation}")
        for text, takes, refuses in ((found.only_old, pair.old, pair.new), (found.only_new, pair.new, pair.old)):
            if text is not None:
                value = json.loads(text)
                tally.expect(valid(takes, value) and not valid(refuses, value), f"{pair.change}: {text!r}")
        contradicted(pair, machines, found.relation, instances, chance, tally)


def contradicted(pair: SchemaPair, machines: tuple[Machine, Machine], relation: str, count: int, chance: random.Random,
                 tally: Tally) -> None:
    """Search for an instance that the relation does not allow, half from each schema."""
    for number in range(count):
        schema = (pair.old, pair.new)[number % 2]
        value = instance(schema, schema, chance)
        text = json.dumps(value, separators=(",", ":")).encode()
        old, new = (accepts(machine, text) for machine in machines)
        fits = (old <= new or relation not in ("equal", "wider")) and (new <= old or relation not in ("equal", "narrower"))
        tally.expect(fits and (old, new) == (valid(pair.old, value), valid(pair.new, value)), f"{pair.change}: {text!r}")


def pattern(chance: random.Random, depth: int) -> str:
    """A random pattern over a, b and c."""
    kind = chance.choice("alor") if depth else "a"
    if kind == "a":
        return chance.choice(ATOMS)
    first = pattern(chance, depth - 1)
    if kind == "r":
        return f"(?:{first}){chance.choice(REPEATS)}"
    return f"(?:{first}{'|' if kind == 'o' else ''}{pattern(chance, depth - 1)})"


def patterns(count: int, tally: Tally) -> float:
    """Pairs of patterns, against interegular; milliseconds that it took for the median pair."""
    chance, peer = random.Random(1), []
    for _ in range(count):
        old, new = pattern(chance, 4), pattern(chance, 4)
        new = chance.choice((new, f"(?:{old})|(?:{new})", f"(?:{old}){chance.choice(REPEATS)}"))
        found = tally.compare(compile_regex(old).machine, compile_regex(new).machine)
        left, right = (interegular.parse_pattern(text).to_fsm() for text in (old, new))
        started = time.perf_counter()
        only = [shortest(left.difference(right)), shortest(right.difference(left))]
        peer.append(1e3 * (time.perf_counter() - started))
        tally.expect(found.relation == RELATIONS[only[0] is not None, only[1] is not None], f"{old} {new}: {found.relation}")
        lengths = [None if text is None else len(text.decode()) for text in (found.only_old, found.only_new)]
        tally.expect(lengths == only, f"{old} {new}: {lengths}, not {only}")
    return statistics.median(peer) if peer else 0.0


def reordered(value: Any) -> Any:
    """The same schema with enums the other way round (alternatives and required names decide the order of members)."""
    if isinstance(value, list):
        return [reordered(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {key: entry[::-1] if key == "enum" and isinstance(entry, list) else reordered(entry) for key, entry in value.items()}


def real(file: Path, count: int, tally: Tally) -> None:
    """Real schemas, against themselves reordered and against their neighbours."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else open(file, encoding="utf-8") as lines:
        rows = [json.loads(line)["schema"] for line in lines]
    before: Machine | None = None
    for schema in rows[::max(1, len(rows) // count)][:count]:
        try:
            machine = compile_json_schema(schema, options=Options(time_limit=10)).machine
            again = compile_json_schema(reordered(schema), options=Options(time_limit=10)).machine
        except CompileError:
            continue
        tally.expect(tally.compare(machine, again).relation == "equal", f"{str(schema)[:200]}: not equal to itself reordered")
        if before is not None:
            found = tally.compare(before, machine)
            for text, takes, refuses in ((found.only_old, before, machine), (found.only_new, machine, before)):
                tally.expect(text is None or (accepts(takes, text) and not accepts(refuses, text)), f"{text!r:.200}")
        before = machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--patterns", type=int, default=300)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--real", type=int, default=100)
    arguments = parser.parse_args()
    share = 5 if arguments.quick else 1
    tallies = {"schemas": Tally(), "patterns": Tally()}
    schemas(arguments.pairs // share, arguments.instances, tallies["schemas"])
    peer = patterns(arguments.patterns // share, tallies["patterns"])
    if arguments.cases:
        tallies["real schemas"] = Tally()
        real(arguments.cases, arguments.real // share, tallies["real schemas"])
    result = {name: tally.data() for name, tally in tallies.items()}
    for name, data in result.items():
        print(f"{name}: {data['pairs']} pairs, {data['relations']}; {data['inexact']} not exact; {data['checks']:,} checks, "
              f"{data['wrong']} wrong; median {data['median_ms']:.2f} ms, p99 {data['p99_ms']:.1f}, most {data['most_ms']:.1f}")
    print(f"interegular's two differences and their shortest words: median {peer:.2f} ms")
    for tally in tallies.values():
        for text in tally.wrong[:5]:
            print("WRONG", text)
    if arguments.json:
        arguments.json.write_text(json.dumps({**result, "interegular_ms": peer}))
    if any(tally.wrong for tally in tallies.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
