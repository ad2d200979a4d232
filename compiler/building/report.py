"""What happened in a build, as plain data and as Markdown for a pull request.

In: a ``Report``. Out: text. Names and messages come from files that nobody vouches for: in Markdown they are escaped.
"""

from __future__ import annotations

from typing import Any

from stcc.compiler.building.build import BUILT, FAILED, FRESH, STALE, Outcome, Report
from stcc.compiler.building.inputs import compiler_identity
from stcc.compiler.pipeline import VERSION
from stcc.formats.summary import note_lines, printable

_MARKS = {BUILT: "built", FRESH: "fresh", STALE: "**stale**", FAILED: "**failed**"}
_SPECIAL = "\\`*_{}[]<>()#+!|~&"
MOST_SHOWN = 120
"""Most characters of a text that is shown."""
MOST_ROWS = 200
"""Most rows of a summary's table; GitHub cuts summaries off at 1 MiB."""


def report_data(report: Report) -> dict[str, Any]:
    """The report as plain data: names by status, and each target with its facts."""
    return {
        "manifest": str(report.manifest.file), "check": report.checked, "passed": report.passed, "compiler": VERSION,
        "compiler_identity": compiler_identity(), "seconds": round(report.seconds, 3), "compiled": report.compiled,
        **{status: report.names(status) for status in (BUILT, FRESH, FAILED, STALE)},
        "targets": [_target_data(outcome) for outcome in report.outcomes],
    }


def _target_data(outcome: Outcome) -> dict[str, Any]:
    target = outcome.target
    found: dict[str, Any] = {
        "name": target.name, "source": str(target.source), "output": str(target.output), "kind": target.kind, "status": outcome.status,
        "bytes_before": outcome.before, "seconds": outcome.seconds,
    }
    if outcome.reason:
        found["reason"] = outcome.reason
    if outcome.change is not None:
        found["change"] = outcome.change
    if outcome.error is not None:
        found["error"] = outcome.error
    return {**outcome.record, **found}


def error_line(outcome: Outcome) -> str:
    """Why a target failed, on one line."""
    error = outcome.error or {}
    place = " ".join(filter(None, (error.get("pointer", ""), error.get("keyword", ""))))
    text = ": ".join(filter(None, (error.get("file", ""), error.get("place", ""), place, error.get("message", ""))))
    return f"{text} ({error['hint']})" if error.get("hint") else text


def change_text(outcome: Outcome) -> str:
    """How the language changed, in Markdown: ``**wider**: only new `{"age":121}```."""
    change = outcome.change or {}
    texts = [f"{side.replace('_', ' ')} {_code(change[side])}" for side in ("only_old", "only_new") if change[side] is not None]
    doubt = "" if change["exact"] else " (as far as is known)"
    return f"**{change['relation']}**{doubt}" + (f": {', '.join(texts)}" if texts else "")


def _code(text: str) -> str:
    """A text as inline code, cut where it is long."""
    shown = printable(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")
    fence = "``" if "`" in shown else "`"
    pad = " " if "`" in shown or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else "the empty text"


def totals(report: Report) -> str:
    """``2 built, 298 fresh`` and how long it took."""
    counts = [f"{len(names)} {status}" for status in (BUILT, STALE, FAILED, FRESH) if (names := report.names(status))]
    return f"{', '.join(counts) or 'no targets'} in {report.seconds:.1f} s"


def markdown(report: Report) -> str:
    """The summary: a heading, what is wrong, and a table of the targets, those that are not fresh first."""
    verb = "check" if report.checked else "build"
    lines = [f"### stcc {verb}: {'passed' if report.passed else 'failed'}", "", totals(report) + ".", ""]
    wrong = [outcome for outcome in report.outcomes if outcome.status in (FAILED, STALE)]
    for outcome in wrong[:MOST_ROWS]:
        text = error_line(outcome) if outcome.status == FAILED else f"the artifact {outcome.reason}: run `stcc build`"
        lines.append(f"- {_MARKS[outcome.status]} {_escaped(outcome.target.name)}: "
                     f"{_escaped(text) if outcome.status == FAILED else text}")
    lines += [f"- {_escaped(outcome.target.name)} is now {change_text(outcome)}" for outcome in report.outcomes[:MOST_ROWS]
              if outcome.change is not None]
    notes = [(outcome, note) for outcome in report.outcomes for note in note_lines(outcome.record.get("unenforced", ()))]
    lines += [f"- not enforced in {_escaped(outcome.target.name)}: {_escaped(note)}" for outcome, note in notes[:MOST_ROWS]]
    if lines[-1]:
        lines.append("")
    lines += ["| artifact | status | bytes | change | states | forced | warnings |", "|---|---|--:|--:|--:|--:|--:|"]
    ordered = sorted(report.outcomes, key=lambda outcome: outcome.status == FRESH)
    lines += [_row(outcome) for outcome in ordered[:MOST_ROWS]]
    if len(ordered) > MOST_ROWS:
        lines += ["", f"and {len(ordered) - MOST_ROWS} more."]
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome) -> str:
    known = outcome.record
    cells = [_escaped(outcome.target.name), _MARKS[outcome.status]]
    if known:
        change = "new" if outcome.before is None else f"{known['bytes'] - outcome.before:+,}" if outcome.status != FRESH else ""
        cells += [f"{known['bytes']:,}", change, f"{known['states']:,}", f"{known['forced_share']:.0%}", str(len(known["warnings"]))]
    else:
        cells += [""] * 5
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in printable(text))
