"""A reply's text, read as it comes: reasoning, content and tool calls.

In: the description of a family's format (``stcc.compiler.frontends.tools.CallFormat``), the tools' parameter schemas, and text in pieces of
any size. Out: ``Reading`` values: what is now known for sure. Text is held back only where it could still become a marker. Replies that a
tool grammar admits are read in exactly one way; text that no grammar held is read as far as it fits, and what does not fit is content.

Cost: linear in the text, and for a call that is under way one attempt a piece to read its arguments.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stcc.runtime.server.stops import overlap

State = Literal["start", "reasoning", "after_reasoning", "text", "call", "after_call", "content"]
_DECODER = json.JSONDecoder()
_MOST_REFERENCES = 32


@dataclass(frozen=True)
class Call:
    """A call: the tool's name, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass
class Reading:
    """What became known: more content, more reasoning, and calls that are complete."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


class ReplyReader:
    """See the module's text."""

    def __init__(self, call_format: Any, parameters: Mapping[str, Any], *, opened: bool = False, answers: bool = False,
                 calls: bool = True, begun: bool = False) -> None:
        """A reader at the beginning of a reply.

        Args:
            call_format: the family's ``CallFormat``; None where there are neither calls nor reasoning.
            parameters: tool -> schema of its arguments, which says what is a string where arguments are tagged text.
            opened: whether the prompt has opened the reasoning section.
            answers: whether a reply that is not calls is an answer, which may hold what looks like a call, but does not begin with it.
            calls: whether there may be calls.
            begun: whether the reply goes on behind text that is read already, and behind its reasoning section if it had one.
        """
        self._format, self._parameters, self._answers = call_format, parameters, answers
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = ""
        self._calls = calls and call_format is not None
        self._start = call_format.section_open + call_format.head if self._calls else ""
        self._bare = self._calls and not self._start  # told from text by its first character
        self._heads = _heads(call_format, parameters) if self._bare and answers else ()
        section = call_format.reasoning if call_format is not None else None
        self._reasoning: Any = section
        self._state: State = "text" if section is None or begun else "reasoning" if opened else "start"
        dropped = [] if call_format is None else [call_format.text.open]
        if call_format is not None and call_format.preamble is not None:
            dropped += [call_format.preamble.open, call_format.preamble.close + call_format.preamble.after]
        self._dropped = [mark for mark in dropped if mark]

    @property
    def in_call(self) -> bool:
        """Whether the text ends inside a call."""
        return self._state == "call"

    @property
    def held_back(self) -> int:
        """Bytes since the call began that the text ends in, its opening among them."""
        return len((self._start + self._buffer).encode("utf-8", "surrogatepass"))

    def feed(self, text: bytes) -> Reading:
        """More text, which may end inside a character."""
        self._buffer += self._decoder.decode(text)
        return self._read()

    def finish(self) -> Reading:
        """The text is over: what was held back."""
        self._buffer += self._decoder.decode(b"", final=True)
        found = self._read()
        if self._state == "call" and self._format.tail_stops and (call := self._call(whole=True)) is not None:
            found.calls.append(call)
        if self._state == "reasoning":
            found.reasoning += self._buffer
        elif self._state != "after_call" or self._buffer.strip():
            found.content += self._buffer
        self._buffer = ""
        return found

    def _read(self) -> Reading:
        found = Reading()
        steps = {"start": self._opening, "reasoning": self._thinking, "after_reasoning": self._skip, "text": self._text,
                 "call": self._calling, "after_call": self._following, "content": self._content}
        while steps[self._state](found):
            pass
        return found

    def _opening(self, found: Reading) -> bool:
        mark = self._reasoning.open
        if self._buffer.startswith(mark):
            self._buffer = self._buffer[len(mark):]
            self._state = "reasoning"
            return True
        if mark.startswith(self._buffer):
            return False
        self._state = "text"
        return True

    def _thinking(self, found: Reading) -> bool:
        mark = self._reasoning.close
        head, met, rest = self._buffer.partition(mark)
        if met:
            found.reasoning += head
            self._buffer, self._state = rest, "after_reasoning"
            return True
        found.reasoning += self._release((mark,))
        return False

    def _skip(self, found: Reading) -> bool:
        """Drop what the format puts behind the section, as much of it as is there."""
        mark = self._reasoning.after
        shared = next((size for size in range(min(len(mark), len(self._buffer)), 0, -1) if self._buffer.startswith(mark[:size])), 0)
        if shared == len(self._buffer) < len(mark):
            return False
        self._buffer, self._state = self._buffer[shared:], "text"
        return True

    def _release(self, marks: tuple[str, ...]) -> str:
        """The text that can be the beginning of none of ``marks``, taken from the buffer."""
        data = self._buffer.encode("utf-8", "surrogatepass")
        keep = max((overlap(data, mark.encode()) for mark in marks), default=0)
        kept = data[len(data) - keep:].decode("utf-8", "surrogatepass")
        shown, self._buffer = self._buffer[: len(self._buffer) - len(kept)], kept
        return shown

    def _text(self, found: Reading) -> bool:
        if self._bare:
            return self._first_character()
        marks = tuple(mark for mark in (self._start, *self._dropped) if mark)
        if self._answers and not any(mark.startswith(self._buffer[: len(mark)]) for mark in marks):
            self._state = "content"
            return True
        met = sorted((place, -len(mark), mark) for mark in marks if (place := self._buffer.find(mark)) >= 0)
        if met:
            place, _, mark = met[0]
            found.content += self._buffer[:place]
            self._buffer = self._buffer[place + len(mark):]
            self._state = "call" if mark == self._start else "text"
            return True
        found.content += self._release(marks)
        return False

    def _first_character(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        if not self._answers:
            self._state = "call" if text[0] == "{" else "content"
            return True
        dense = _dense(text)
        if any(len(dense) < len(head) and head.startswith(dense) for head in self._heads):
            return False
        self._state = "call" if any(re.match(_spaced(head), text) for head in self._heads) else "content"
        return True

    def _content(self, found: Reading) -> bool:
        found.content += self._buffer
        self._buffer = ""
        return False

    # ---- calls

    def _calling(self, found: Reading) -> bool:
        call = self._call(whole=False)
        if call is None:
            return False
        found.calls.append(call)
        self._state = "after_call"
        return True

    def _following(self, found: Reading) -> bool:
        again, close = self._format.separator + self._format.head, self._format.section_close
        for mark, state in ((again, "call"), (close, "content")):
            if mark and self._buffer.startswith(mark):
                self._buffer = self._buffer[len(mark):]
                self._state = state  # type: ignore[assignment]
                return True
        if not self._buffer or any(mark.startswith(self._buffer) for mark in (again, close)):
            return False
        self._state = "content"
        return True

    def _call(self, whole: bool) -> Call | None:
        """The call at the buffer's beginning, taken from it with its tail; None while it is not all there."""
        read = self._object_call() if self._format.keys is not None else self._named_call()
        if read is None:
            return None
        call, place = read
        tail = self._format.tail
        if self._buffer.startswith(tail, place):
            place += len(tail)
        elif not whole:
            return None
        self._buffer = self._buffer[place:]
        return call

    def _object_call(self) -> tuple[Call, int] | None:
        first, second = map(re.escape, self._format.keys)
        head = re.match(rf'\s*\{{\s*"{first}"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"{second}"\s*:\s*', self._buffer)
        end = None if head is None else _value_end(self._buffer, head.end())
        if head is None or end is None:
            return None
        closing = re.compile(r"\s*\}").match(self._buffer, end)
        return None if closing is None else (Call(json.loads(head[1]), self._buffer[head.end():end]), closing.end())

    def _named_call(self) -> tuple[Call, int] | None:
        name, met, _ = self._buffer.partition(self._format.neck)
        if not met:
            return None
        place = len(name) + len(met)
        if self._format.numbered:
            name = name.rpartition(":")[0]
        if self._format.tags is not None:
            return self._tagged(name, place)
        end = _value_end(self._buffer, place)
        return None if end is None else (Call(name, self._buffer[place:end].strip()), end)

    def _tagged(self, name: str, place: int) -> tuple[Call, int] | None:
        tags, values = self._format.tags, {}
        while self._buffer.startswith(tags.open, place):
            place += len(tags.open)
            middle = self._buffer.find(tags.between, place)
            end = self._buffer.find(tags.close, middle + len(tags.between)) if middle >= 0 else -1
            if end < 0:
                return None
            key = self._buffer[place:middle]
            values[key] = _spelled(self._buffer[middle + len(tags.between):end], self._schema(name, key), self._parameters.get(name, {}))
            place = end + len(tags.close)
        if not self._buffer.startswith(tags.end, place):
            return None
        return Call(name, "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"), place + len(tags.end)

    def _schema(self, name: str, key: str) -> Any:
        parameters = self._parameters.get(name, {})
        properties = parameters.get("properties", {}) if isinstance(parameters, dict) else {}
        return properties.get(key, parameters.get("additionalProperties", True)) if isinstance(parameters, dict) else True


def _heads(call_format: Any, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """How calls begin in a format whose calls are bare JSON objects, without white space."""
    name, arguments = call_format.keys
    return tuple(_dense(f'{{"{name}":"{tool}","{arguments}":') for tool in parameters)


def _spaced(head: str) -> str:
    """The pattern of a dense head with white space between its parts."""
    return "[ \\t\\r\\n]*".join(re.escape(part) for part in re.findall(r'"[^"]*"|[{:,]', head))


def _dense(text: str) -> str:
    """``text`` without white space, which tools' names do not hold."""
    return "".join(text.split())


def _value_end(text: str, place: int) -> int | None:
    """Where the JSON value that begins at ``place`` ends; None while it is not complete."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    try:
        return int(_DECODER.raw_decode(text, place)[1])
    except (ValueError, RecursionError):
        return None


def _spelled(text: str, schema: Any, root: Any) -> str:
    """Tagged text as JSON: raw where only strings are admitted; else the JSON value it spells, or a string where it spells none."""
    if not only_strings(schema, root):
        try:
            if not isinstance(json.loads(text), str) or not only_strings(schema, root):
                return text.strip()
        except (ValueError, RecursionError):
            pass
    return json.dumps(text, ensure_ascii=False)


def only_strings(schema: Any, root: Any, depth: int = 0) -> bool:
    """Whether a schema plainly admits nothing but strings.

    >>> only_strings({"enum": ["a", "b"]}, {}), only_strings({"type": ["string", "null"]}, {})
    (True, False)
    """
    if not isinstance(schema, dict) or depth > _MOST_REFERENCES:
        return False
    if "type" in schema:
        return schema["type"] in ("string", ["string"])
    if "const" in schema:
        return isinstance(schema["const"], str)
    if "enum" in schema:
        return bool(schema["enum"]) and all(isinstance(value, str) for value in schema["enum"])
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return only_strings(_target(reference, root), root, depth + 1)
    for keyword, holds in (("allOf", any), ("anyOf", all), ("oneOf", all)):
        parts = schema.get(keyword)
        if isinstance(parts, list) and parts and holds(only_strings(part, root, depth + 1) for part in parts):
            return True
    return False


def _target(reference: str, root: Any) -> Any:
    found = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict):
            found = found.get(part)
        else:
            return None
    return found
