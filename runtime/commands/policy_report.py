"""What ``stcc inspect`` says of a policy, as plain data and as tables.

In: a ``PolicyGraph``. Out: its sizes before and after reduction, histories counted world by world, every class with a shortest history and
the actions that are dead there (the minimal antichain), and for every proposed abstraction whether it is sound, or the two histories that
prove that it is not. Cost: linear in the graph.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from stcc.formats.policy import AbstractionVerdict, PolicyGraph, Step, world_counts
from stcc.formats.summary import printable

MOST_CLASSES = 60
"""Classes that are shown to people."""
MOST_LISTED = 10_000
"""Classes that the JSON report lists."""


def policy_report(graph: PolicyGraph) -> dict[str, Any]:
    """The report; see the module's text."""
    histories = class_histories(graph, MOST_LISTED)
    dead: dict[int, list[str]] = {}
    for number, action in graph.dead.tolist():
        dead.setdefault(number, []).append(graph.actions[action])
    return {
        "actions": list(graph.actions), "observations": list(graph.observations[1:]), "horizon": graph.horizon,
        "worlds": [{"name": counts.world, "weight": weight, "traces": counts.traces, "valid": counts.valid, "prefixes": counts.prefixes}
                   for counts, weight in zip(world_counts(graph), graph.world_weights.tolist(), strict=True)],
        "configurations": graph.explored[0], "positions": graph.explored[1], "reduced_configurations": len(graph.ending),
        "classes": len(graph.class_accepting), "dead_continuations": len(graph.dead),
        "class_list": [{"class": number, "accepting": accepting, "history": graph.spell(histories[number]), "dead": dead.get(number, [])}
                       for number, accepting in enumerate(graph.class_accepting[:MOST_LISTED].tolist())],
        "abstractions": [_verdict(graph, verdict) for verdict in graph.abstractions],
    }


def _verdict(graph: PolicyGraph, verdict: AbstractionVerdict) -> dict[str, Any]:
    report: dict[str, Any] = {"name": verdict.name, "sound": verdict.sound, "bisimulation": verdict.bisimulation, "keys": verdict.keys}
    if not verdict.sound:
        completed, other, continuation = map(graph.spell, verdict.proof)
        report["proof"] = {"history": completed, "other_history": other, "continuation": continuation}
    return report


def class_histories(graph: PolicyGraph, most: int) -> list[tuple[Step, ...]]:
    """A shortest history of each of the first ``most`` classes: steps lead to higher numbers, so that one pass finds them."""
    width, count = len(graph.actions), len(graph.class_accepting)
    length = [0] + [count] * (count - 1)
    origin: list[tuple[int, Step]] = [(-1, (0, 0))] * count
    for number in range(count):
        for action in range(width):
            for seen, target in graph.classes.of(number, action, width):
                if length[target] > length[number] + 1:
                    length[target], origin[target] = length[number] + 1, (number, (action, seen))
    found = []
    for number in range(min(most, count)):
        steps = []
        while number > 0 and origin[number][0] >= 0:
            number, step = origin[number]
            steps.append(step)
        found.append(tuple(reversed(steps)))
    return found


def policy_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value rows for people."""
    rows = [("policy", f"{len(report['actions'])} actions, {len(report['observations'])} observations, up to {report['horizon']} actions"),
            ("explored", f"{report['configurations']:,} configurations, {report['positions']:,} positions"),
            ("reduced to", f"{report['classes']:,} classes (the coarsest sound partition), "
                           f"{report['reduced_configurations']:,} configurations"),
            ("dead", f"{report['dead_continuations']:,} continuations in the minimal antichain")]
    rows += [(f"world {printable(world['name'])}", f"prior {world['weight']:.4g}: {world['traces']:,} complete histories, "
              f"{world['valid']:,} valid, {world['prefixes']:,} running") for world in report["worlds"]]
    for verdict in report["abstractions"]:
        local = ", a bisimulation" if verdict["bisimulation"] else ", though not step by step"
        said = f"sound{local}" if verdict["sound"] else "NOT SOUND"
        rows.append((f"abstraction {printable(verdict['name'])}", f"{said}; {verdict['keys']:,} keys"))
        if "proof" in verdict:
            proof = verdict["proof"]
            rows += [("", f"{proof['history'] or '(start)'}  and  {proof['other_history'] or '(start)'}  share a key;"),
                     ("", f"{proof['continuation']}  completes the first only")]
    return rows


def show_classes(report: dict[str, Any], console: Console) -> None:
    """Classes and what is dead at each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class", justify="right")
    table.add_column("after", overflow="fold")
    table.add_column("dead there", overflow="fold")
    for entry in report["class_list"][:MOST_CLASSES]:
        table.add_row(str(entry["class"]), printable(entry["history"]) or "(start)",
                      "valid: ends here" if entry["accepting"] else " ".join(entry["dead"]) or "-")
    console.print(table)
    left = report["classes"] - min(MOST_CLASSES, len(report["class_list"]))
    if left > 0:
        console.print(f"and {left:,} more; --json lists up to {MOST_LISTED:,}")
