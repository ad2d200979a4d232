"""Dates, times and durations of RFC 3339, as patterns.

Exact, with the leap rule of the Gregorian calendar in ``DATE``, but for two things. A leap second (``:60``) is possible only where the
time is 23:59:60 in UTC, so local time and offset must agree; an automaton has to remember the local time for that, a dozen states for
each offset. Leap seconds are accepted with offsets of whole and half hours in ``TIME``, and in ``DATE_TIME`` (which schemas use fifty
times as often) in UTC and at -05:00 to -08:00, on 30 June and 31 December, the only days that ever had one. And the units of a
duration are capital letters, although RFC 5234 literals ignore case.
"""

from __future__ import annotations

_YEAR_DIVISIBLE_BY_4 = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_MINUTE = "[0-5][0-9]"
_FRACTION = "(?:\\.[0-9]+)?"
_OFFSET = f"(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"
_UTC = "(?:[Zz]|[+-]00:00)"

DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_YEAR_DIVISIBLE_BY_4}-02-29)"
)


def _leap(hours: int, minutes: int) -> str:
    """Leap second at a fixed offset of ``hours`` and ``minutes``, both of the offset's sign."""
    local = (23 * 60 + 59 + 60 * hours + minutes) % (24 * 60)
    sign = "-" if hours < 0 or minutes < 0 else "+"
    return f"{local // 60:02}:{local % 60:02}:60{_FRACTION}\\{sign}{abs(hours):02}:{abs(minutes):02}"


_LEAP_UTC = f"23:59:60{_FRACTION}{_UTC}"
_LEAP_WEST = [_leap(-hours, 0) for hours in range(5, 9)]
_LEAP_ANY = [_leap(sign * hours, sign * minutes) for sign in (1, -1) for hours in range(24) for minutes in (0, 30) if hours or minutes]

_TIME = f"{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}{_OFFSET}"
TIME = f"(?:{_TIME}|{'|'.join([_LEAP_UTC, *_LEAP_ANY])})"
DATE_TIME = f"(?:{DATE}[Tt]{_TIME}|[0-9]{{4}}-(?:06-30|12-31)[Tt](?:{'|'.join([_LEAP_UTC, *_LEAP_WEST])}))"

_SECONDS = "[0-9]+S"
_MINUTES = f"[0-9]+M(?:{_SECONDS})?"
_CLOCK = f"T(?:[0-9]+H(?:{_MINUTES})?|{_MINUTES}|{_SECONDS})"
_DAYS = "[0-9]+D"
_MONTHS = f"[0-9]+M(?:{_DAYS})?"
_YEARS = f"[0-9]+Y(?:{_MONTHS})?"
DURATION = f"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|[0-9]+W)"
