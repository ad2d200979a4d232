"""An explanation as one HTML page that stands alone: no script, no other file, nothing fetched; readable in light and dark.

In: the report of ``stcc explain``, and an SVG. Out: the page's text, the same on every run. Names, pointers, messages and texts come from
sources nobody vouches for: everything but the SVG, which escapes for itself, goes through ``_text``. A content security policy in the page
forbids what could still be run or loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from stcc.formats.summary import printable
from stcc.runtime.commands.explain import FIELD_COLUMNS, count_text, field_row, summary_rows

MOST_REGIONS = 500
_MEANINGS = {
    "field": "the path of the value; * is every item, or every member that no name tells apart", "type": "JSON types that it may have",
    "states": "states that read its own text", "forced": "share of its bytes that are forced: of all its texts, or (~) of a shortest one",
    "passes": "most sampled tokens that begin in it", "bytes": "length of its shortest text", "texts": "how many texts it may have",
    "cut": "whether every output passes its beginning exactly once", "block": "fields of different blocks can be drafted at once",
    "need": "fewest tokens that finish the output from its beginning",
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--paper:#fff;--soft:#f1f4f7;--line:#d4dae0;--mark:#8a5a00;--link:#1f5fbf}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--paper:#15181b;--soft:#20262b;--line:#3a434b;--mark:#f0b060;--link:#7db2ff}}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}code,td.c,pre{font-family:ui-monospace,Menlo,Consolas,monospace;
font-size:.9em}.w{overflow-x:auto}table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .6rem;
border-bottom:1px solid var(--line);white-space:nowrap}th{background:var(--soft)}th.l,td.l{text-align:left;white-space:normal;
overflow-wrap:anywhere}li{margin:.5rem 0}li b{color:var(--mark)}small{color:inherit;opacity:.75}pre{background:var(--soft);padding:.75rem;
overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}svg{max-width:none}
"""


def explanation_page(report: dict[str, Any], svg: str) -> str:
    """The page of ``report``, with ``svg`` as its drawing."""
    name = _text(report["name"] or report["file"])
    body = [f"<h1>{name}</h1>", _facts(summary_rows(report)), _warnings(report["warnings"]), "<h2>Fields</h2>", _fields(report)]
    for tool, inner in report["tools"].items():
        body += [f"<h2>Arguments of {_text(tool)}, compiled alone</h2>", _fields(inner)]
    body += ["<h2>Parts between cut states</h2>", _regions(report["regions"])]
    if report["shortest"] is not None:
        body += ["<h2>A shortest output in tokens</h2>", f"<pre>{_text(report['shortest']['text'])}</pre>"]
    body += ["<h2>The machine</h2>", f'<div class="w">{svg}</div>', "<h2>What the columns mean</h2>",
             _list(f"<b>{_text(column)}</b> {_text(meaning)}" for column, meaning in _MEANINGS.items()),
             "<h2>Fingerprints</h2>", _facts(_fingerprints(report))]
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">', f"<title>{name}: what it costs</title>",
        f"<style>{_STYLE}</style></head><body>", *body, "</body></html>", ""])


def _text(value: object) -> str:
    """Anything as text that is only text."""
    return escape(printable(str(value)), quote=True)


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><th class="l" scope="row">{_text(name)}</th><td class="l">{_text(value)}</td></tr>' for name, value in rows)
    return f'<div class="w"><table>{cells}</table></div>'


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col"{_left(number)}>{_text(column)}</th>' for number, column in enumerate(columns))
    body = "".join("<tr>" + "".join(f"<td{_left(number)}>{_text(cell)}</td>" for number, cell in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="w"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _left(number: int) -> str:
    return ' class="l c"' if number == 0 else ' class="l"' if number == 1 else ""


def _fields(report: dict[str, Any]) -> str:
    rows = ((*field_row(field), " ".join(field["schema"][:2])) for field in report["fields"])
    return _table((*FIELD_COLUMNS, "schema"), rows)


def _regions(regions: list[dict[str, Any]]) -> str:
    if not regions:
        return "<p>There are none: no state but the start is passed by every output.</p>"
    rows = [(", ".join(region["fields"]) or f"part {region['number'] + 1}", "" if region["certified"] else region["reason"],
             count_text(region["texts"] if region["certified"] else None, "many"),
             count_text(region["passes"] if region["certified"] else None), str(region["blocks"]) if region["certified"] else "")
            for region in regions[:MOST_REGIONS]]
    more = f"<p>And {len(regions) - MOST_REGIONS:,} more.</p>" if len(regions) > MOST_REGIONS else ""
    return _table(("fields", "why not certified", "texts", "passes", "independent choices"), rows) + more


def _warnings(warnings: list[dict[str, str]]) -> str:
    if not warnings:
        return "<h2>Warnings</h2><p>There are none.</p>"
    items = (f"<b>{_text(each['code'])}</b> <code>{_text(each['pointer'])} {_text(each['keyword'])}</code><br>{_text(each['message'])}<br>"
             f"<small>Way out: {_text(each['hint'])}.</small>" for each in warnings)
    return "<h2>Warnings</h2>" + _list(items)


def _fingerprints(report: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("source (SHA-256)", report["source_sha256"]), ("compiler", report["compiler"])]
    rows += [("bound to", fingerprint) for fingerprint in report["vocabularies"]]
    if report["vocabulary"] is not None:
        rows.append(("vocabulary of this page", report["vocabulary"]["fingerprint"]))
    return rows
