"""Items that must differ: what is kept of an output beside the machine's configuration, and how bytes change it.

In: a machine's ``unique`` states, a configuration, bytes that the machine accepts there. Out: the ``Progress`` after them, or None once
an item is completed that equals an earlier one of its array. Outside such arrays there is none (``IDLE``). Inside, from the ``[`` that
opened the outermost one, the text is read as JSON: an open container is a ``Frame`` on a persistent stack, a value is kept in the
canonical form of ``json_values``, and the items of an array that must differ in ``Items``, a set whose versions share one dictionary.
A ``Progress`` is immutable: rollback and forks keep references.

The *rivals* of a position are the earlier items that the item under way may still become equal to. Most text has none left after a token
or two, and then nothing can go wrong before the next item.

Cost: linear in the bytes; a version of ``Items`` costs one insertion, or a copy after a rollback. Earlier strings are found by bisection.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stcc.runtime.json_values import LITERALS, Array, Number, Object, Value, array, number, object_, scalar, spelled, string

if TYPE_CHECKING:
    from stcc.runtime.stack import Configuration, Level, Stacks

ARRAY, OBJECT = 0x5B, 0x7B
BETWEEN, WANTED, STRING, BARE = range(4)
"""Where in the innermost frame the text stands: after a value, a name or the opening bracket; after a comma or colon; inside a string;
inside a number or literal."""
_CLOSING = {0x5D: ARRAY, 0x7D: OBJECT}
_QUOTE, _BACKSLASH = b'"', b"\\"
_SPACE = b" \t\n\r"
_STRING_END = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"[-+.0-9A-Za-z]*")
_DIGITS, _EXPONENT = re.compile(rb"[^0-9]"), re.compile(rb"[eE]")
_HEX = re.compile(rb"\\u[0-9A-Fa-f]{0,4}")


class _Pool:
    """Items that versions share: value -> place, and the strings among the first ``sorted`` of them by how they are spelled."""

    __slots__ = ("places", "sorted", "strings")

    def __init__(self, places: dict[Value, int]) -> None:
        self.places = places
        self.sorted = 0
        self.strings: list[tuple[bytes, int, str]] = []

    def beginning(self, begun: bytes) -> list[tuple[bytes, int, str]]:
        """The strings whose spelling begins so, as (spelling, place, value)."""
        if self.sorted < len(self.places):
            fresh = list(self.places.items())[self.sorted:]
            self.strings += [(spelled(value), place, value) for value, place in fresh if isinstance(value, str)]
            self.strings.sort()
            self.sorted += len(fresh)
        low = bisect_left(self.strings, (begun, -1, ""))
        return self.strings[low:bisect_left(self.strings, (begun + b"\xff", -1, ""), low)]  # no byte of UTF-8 is 255


class Items:
    """A version of the items of an array that must differ: the first ``count`` of a pool shared by versions."""

    __slots__ = ("_pool", "count")

    def __init__(self, pool: _Pool | None = None, count: int = 0) -> None:
        self._pool = _Pool({}) if pool is None else pool
        self.count = count

    def beginning(self, begun: bytes) -> list[str]:
        """The strings whose spelling begins with ``begun``."""
        return [value for _, place, value in self._pool.beginning(begun) if place < self.count]

    def __contains__(self, value: Value) -> bool:
        return self._pool.places.get(value, self.count) < self.count

    def __iter__(self) -> Iterator[Value]:
        return iter(list(self._pool.places)[: self.count])

    def with_item(self, value: Value) -> Items:
        """The version with ``value``, which is not in it, as its last item."""
        if len(self._pool.places) == self.count:
            self._pool.places.setdefault(value, self.count)
        if self._pool.places.get(value) == self.count:
            return Items(self._pool, self.count + 1)
        places = {kept: place for place, kept in enumerate(self)}  # another version went on from here
        places[value] = self.count
        return Items(_Pool(places), self.count + 1)


class Frame:
    """An open container.

    Attributes:
        kind: ``ARRAY`` or ``OBJECT``.
        items: the items so far of an array that must differ, else None.
        values: the items so far of another array, or an object's (name, value) pairs.
        name: in an object, the name whose value is to come; None before a name.
        outer: the container around it; None for the outermost array that must differ.
        repeats: whether in it, or in a value inside, a name was spelled again: the last value counts, as for most readers.
    """

    __slots__ = ("items", "kind", "name", "outer", "repeats", "values")

    def __init__(self, kind: int, outer: Frame | None, *, items: Items | None = None, values: tuple[Value, ...] = (),
                 name: str | None = None, repeats: bool = False) -> None:
        self.kind, self.items, self.values, self.name, self.outer, self.repeats = kind, items, values, name, outer, repeats

    def done(self) -> tuple[Value, ...]:
        """The items of an array so far."""
        return self.values if self.items is None else tuple(self.items)

    def closed(self) -> Value:
        """The container as a value."""
        return object_(self.values) if self.kind == OBJECT else array(self.done())

    def key(self) -> object:
        """What tells this frame, without those around it, from others."""
        return (self.name, frozenset(self.values)) if self.kind == OBJECT else self.done()

    def with_value(self, value: Value) -> Frame | None:
        """The frame after one more value, which in an object may be a name; None for an item that equals an earlier one.

        A name that is spelled again takes its member away.
        """
        if self.items is not None:
            return None if value in self.items else Frame(ARRAY, self.outer, items=self.items.with_item(value))
        if self.kind == ARRAY:
            return Frame(ARRAY, self.outer, values=(*self.values, value), repeats=self.repeats)
        if self.name is not None:
            return Frame(OBJECT, self.outer, values=(*self.values, (self.name, value)), repeats=self.repeats)
        if not isinstance(value, str):
            return None
        others = tuple(pair for pair in self.values if pair[0] != value)
        return Frame(OBJECT, self.outer, values=others, name=value, repeats=self.repeats or len(others) < len(self.values))


class Progress:
    """A position in a text: the innermost frame, where in it (``mode``), and the text of the scalar under way, as spelled."""

    __slots__ = ("_rivals", "frame", "mode", "text")

    def __init__(self, frame: Frame | None, mode: int, text: bytes = b"") -> None:
        self.frame, self.mode, self.text = frame, mode, text
        self._rivals: dict[Frame, tuple[Value, ...]] | None = None

    def within_item(self) -> bool:
        """Whether an item of an array that must differ is under way, or has to come."""
        return self.frame is not None and (self.frame.outer is not None or self.mode != BETWEEN)

    def rivals(self) -> dict[Frame, tuple[Value, ...]]:
        """For each open array that must differ and is within an item: the earlier items that this one may still equal; none left out if
        none may.
        """
        if self._rivals is None:
            self._rivals = self._find_rivals(None)
        return self._rivals

    def narrow(self, before: Progress) -> None:
        """Find the rivals among those of ``before``, a position earlier in the same text."""
        if self._rivals is None and before._rivals is not None and before.within_item():
            self._rivals = self._find_rivals(before)

    def targets(self) -> set[Value]:
        """What the value or name under way would have to be for some item to equal an earlier one."""
        path: list[Frame] = []
        frame, found = self.frame, set[Value]()
        while frame is not None:
            for rival in self.rivals().get(frame, ()):
                found.update(target for (target,) in self._targets(rival, path))
            path.insert(0, frame)
            frame = frame.outer
        return found

    def key(self) -> object:
        """What tells this position from others as far as values go: a number under way by what it is worth so far."""
        text: object = self.text
        if self.mode == BARE and not self.text.isdigit():
            text = number(self.text) or self.text
        keys: list[object] = [self.mode, text]
        frame = self.frame
        while frame is not None:
            keys.append(frame.key())
            frame = frame.outer
        return tuple(keys)

    def _find_rivals(self, before: Progress | None) -> dict[Frame, tuple[Value, ...]]:
        path: list[Frame] = []
        frame, found = self.frame, {}
        known = {} if before is None else before.rivals()
        while frame is not None:
            if frame.items is not None and frame.items.count and (path or self.mode != BETWEEN):
                earlier = before is not None and before._holds(frame) and not any(inner.repeats for inner in path)
                rivals = tuple(self._matching(known.get(frame, ()) if earlier else frame.items, path))
                if rivals:
                    found[frame] = rivals
            path.insert(0, frame)
            frame = frame.outer
        return found

    def _holds(self, frame: Frame) -> bool:
        """Whether ``frame`` is open here, within the same item."""
        each = self.frame
        while each is not None and each is not frame:
            each = each.outer
        return each is frame and (self.frame is not frame or self.mode != BETWEEN)

    def _matching(self, candidates: Items | tuple[Value, ...], path: list[Frame]) -> Iterator[Value]:
        if path:
            kind = Array if path[0].kind == ARRAY else Object
            yield from (value for value in candidates if isinstance(value, kind) and next(self._targets(value, path), None) is not None)
        elif self.mode == STRING:
            begun = normal(self.text)
            if isinstance(candidates, Items):
                yield from candidates.beginning(begun)
                return
            yield from (value for value in candidates if isinstance(value, str) and spelled(value).startswith(begun))
        elif self.mode == BARE:
            yield from (value for value in candidates if self._fits(value))
        else:
            yield from candidates

    def _targets(self, value: Value, path: list[Frame]) -> Iterator[tuple[Value]]:
        """What the value under way must become for the item to equal ``value``, each as ``(target,)``; nothing if it cannot.

        ``path``: the frames between the array and the position, outermost first. Where no value is under way, what the next one or the
        next name must be, or None.
        """
        found: list[Value] = [value]
        for frame in path:
            innermost = frame is path[-1]
            if frame.kind == ARRAY:
                done = frame.done()
                found = [each.values for each in found if isinstance(each, Array) and each.values[:len(done)] == done]
                may_close = innermost and self.mode == BETWEEN
                found = [values[len(done)] if len(values) > len(done) else None for values in found if may_close or len(values) > len(done)]
            else:
                found = [each for each in found if isinstance(each, Object) and each.pairs.issuperset(frame.values)]
                if frame.name is not None:
                    found = [each.members[frame.name] for each in found if frame.name in each.members]
                else:
                    found = [name for each in found for name in (*each.members, None)]
        yield from ((each,) for each in found if self._fits(each))

    def _fits(self, target: Value) -> bool:
        """Whether the scalar under way may become ``target``."""
        if self.mode == STRING:
            return isinstance(target, str) and spelled(target).startswith(normal(self.text))
        if self.mode != BARE:
            return True
        if isinstance(target, Number):
            return may_become(self.text, target)
        return any(text.startswith(self.text) for text, literal in LITERALS.items() if literal is target)


IDLE = Progress(None, BETWEEN)
"""Outside all arrays whose items must differ."""


def may_become(text: bytes, target: Number) -> bool:
    """Whether a number begun as ``text`` may turn out to be ``target``: never wrongly no."""
    if text[:1].isalpha():
        return False
    digits = (text if text.isdigit() else _DIGITS.sub(b"", _EXPONENT.split(text)[0])).lstrip(b"0")
    if digits and text.startswith(b"-") != target.negative:
        return False
    return target.digits.ljust(len(digits), b"0").startswith(digits)


def normal(text: bytes) -> bytes:
    """``text`` with the digits of its escapes in lower case."""
    return _HEX.sub(lambda found: found[0].lower(), text) if b"\\u" in text else text


class Reader:
    """Reads bytes of one machine's texts.

    Attributes:
        stacks: the machine's stacks.
        unique: the machine's ``unique`` states.
    """

    def __init__(self, stacks: Stacks) -> None:
        self.stacks = stacks
        self.unique = frozenset(stacks.machine.unique.tolist())

    def read(self, state: int, level: Level, progress: Progress, data: bytes) -> Progress | None:
        """The progress after ``data``, which the machine accepts in the configuration; None where an item equals an earlier one.

        None too where the text is not JSON, which no compiled machine lets happen.
        """
        return _Reading(self, (state, level), progress, data).run()


class _Reading:
    """One run over some bytes."""

    def __init__(self, reader: Reader, configuration: Configuration, progress: Progress, data: bytes) -> None:
        self.reader, self.configuration, self.data = reader, configuration, data
        self.frame, self.mode, self.text = progress.frame, progress.mode, progress.text
        self.place = self.stepped = 0

    def run(self) -> Progress | None:
        """Read to the end of the data."""
        sound = True
        while sound and self.place < len(self.data):
            if self.frame is None:
                self.outside()
            elif self.mode == STRING:
                sound = self.in_string()
            elif self.mode == BARE:
                sound = self.in_bare()
            else:
                sound = self.structure()
        if not sound:
            return None
        return IDLE if self.frame is None else Progress(self.frame, self.mode, self.text)

    def opens_unique(self) -> bool:
        """Whether the ``[`` at ``place`` opens an array that must differ."""
        after = self.reader.stacks.read(*self.configuration, self.data[self.stepped:self.place + 1])
        if after is None:
            return False
        self.configuration, self.stepped = after, self.place + 1
        return after[0] in self.reader.unique

    def outside(self) -> None:
        """Go to the next array that must differ, and into it."""
        self.place = self.data.find(b"[", self.place)
        while self.place >= 0:
            if self.opens_unique():
                self.frame, self.mode = Frame(ARRAY, None, items=Items()), BETWEEN
                self.place += 1
                return
            self.place = self.data.find(b"[", self.place + 1)
        self.place = len(self.data)

    def in_string(self) -> bool:
        """Read on in a string, up to its end if it is here."""
        escaped = (len(self.text) - len(self.text.rstrip(_BACKSLASH))) & 1
        found = _STRING_END.match(self.data, self.place + escaped)
        if found is None:
            self.text += self.data[self.place:]
            self.place = len(self.data)
            return True
        value = string(self.text + self.data[self.place:found.end() - 1])
        self.place = found.end()
        return value is not None and self.complete(value)

    def in_bare(self) -> bool:
        """Read on in a number or literal; it ends before the first byte that cannot belong to it."""
        found = _BARE.match(self.data, self.place)
        end = self.place if found is None else found.end()
        self.text += self.data[self.place:end]
        self.place = end
        if end == len(self.data):
            return True
        value = scalar(self.text)
        return value is not None and self.complete(value[0])

    def structure(self) -> bool:
        """Read one byte outside scalars."""
        byte = self.data[self.place]
        if byte in _SPACE:
            pass
        elif byte in b",:":
            self.mode = WANTED
        elif byte == _QUOTE[0]:
            self.mode = STRING
        elif byte == OBJECT:
            self.frame, self.mode = Frame(OBJECT, self.frame), BETWEEN
        elif byte == ARRAY:
            self.frame, self.mode = Frame(ARRAY, self.frame, items=Items() if self.opens_unique() else None), BETWEEN
        elif byte in _CLOSING:
            frame = self.frame
            if frame is None or frame.kind != _CLOSING[byte]:
                return False
            self.frame = frame.outer
            self.place += 1
            return self.frame is None or self.complete(frame.closed(), frame.repeats)
        else:
            self.mode = BARE
            return True
        self.place += 1
        return True

    def complete(self, value: Value, repeats: bool = False) -> bool:
        """A value has ended in the innermost frame; False if it must not be there. ``repeats``: as in the frame that it was."""
        assert self.frame is not None
        frame = self.frame.with_value(value)
        if frame is None:
            return False
        frame.repeats |= repeats and frame.items is None
        self.frame, self.mode, self.text = frame, BETWEEN, b""
        return True
