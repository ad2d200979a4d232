"""String formats against tables, the calendar, ``ipaddress``, ``idna`` and jsonschema-rs."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.dfa import Dfa
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.scalars.formats import KNOWN_FORMATS, string_format
from stcc.compiler.scalars.mail import at_most_octets

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
SUITE = Path(__file__).resolve().parents[2] / "shared" / "data" / "suite-dev.jsonl.gz"
# Formats that refuse something valid (docs/formats.md); all others agree with every example.
NARROWER = {"hostname", "idn-hostname", "idn-email", "regex", "email"}

VALID = {
    "date": ["2024-02-29", "2000-02-29", "0000-02-29", "1999-12-31", "2023-04-30"],
    "date-time": ["1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00", "1990-12-31T23:59:60Z", "1990-12-31t15:59:60.123-08:00",
                  "1937-01-01T12:00:27.87+00:20", "1972-06-30T23:59:60-00:00"],
    "duration": ["P4DT12H30M5S", "P4Y", "PT0S", "P2W", "P1Y2M3DT4H5M6S", "PT36H"],
    "email": ["a@b", "joe.bloggs@example.com", '"joe bloggs"@example.com', '"a\\"b@c"@example.com', "te~st@[127.0.0.1]", "x@[IPv6:::1]",
              "a" * 64 + "@" + "b" * 63, "first+tag@sub.domain-name.org"],
    "hostname": ["www.example.com", "a", "1host", "h-0", "a" * 63 + ".com", ".".join(["a" * 63] * 3 + ["b" * 61]), "a--b"],
    "idn-email": ["실례@실례.테스트", "δοκιμή@example.com", '"δοκιμή"@example.com', "\u0080\uffff@a.b", "user@cafe\u0301.com"],
    "idn-hostname": ["실례.테스트", "straße.de", "παράδειγμα.com", "пример.испытание", "例え.テスト", "ไทย", "क्ष", "example.com", "a" * 63],
    "ipv4": ["0.0.0.0", "192.168.0.1", "255.255.255.255"],
    "ipv6": ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1:2:3:4:5:6:1.2.3.4"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001:db8::7]/é", "mailto:ü@x", "http://x/?\ue000"],
    "iri-reference": ["//ƒøø/ß", "âππ", "#ƒ", ""],
    "json-pointer": ["", "/", "/foo/bar~0/baz~1/%a", "/é~1", "//"],
    "regex": ["", "^a|b$", "([abc])+\\s+$", "(?:x(y(z))){2,}?", "[]", "[^]", "\\cA", "(?=a)b(?<!c)", "[a-z0-9_-]{0,12}",
              "\\u0041\\x41", "a{1,20}", "^[2-9A-f_]{3,16}$", "a{9,10}?"],
    "relative-json-pointer": ["0", "1", "0#", "12/foo/bar", "3/"],
    "time": ["08:30:06Z", "23:59:60Z", "01:29:60+01:30", "15:59:60-08:00", "00:29:60-23:30", "12:34:56.789-00:00", "08:30:06z"],
    "uri": ["http://foo.bar/?baz=qux#quux", "urn:isbn:0-395-36341-1", "ldap://[2001:db8::7]/c=GB?objectClass?one", "tel:+1", "a:", "x://",
            "http://user:p%20w@[v1.a:b]:80/;,", "file:///etc/hosts", "http://087.10.0.1/"],
    "uri-reference": ["", "/abc", "abc", "../a/b?c#d", "//h", "?q", "#f", "./a:b", "http:a"],
    "uri-template": ["", "x{?a,b*}", "{/list*}", "{+path:6}/here", "{&x.y}", "a%20b{%41}", "{#hello_1}", "é{;v}"],
    "uuid": ["2eb8aa08-AA98-11ea-B4Aa-73B441D16380", "00000000-0000-0000-0000-000000000000"],
}
INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-1-01", "02023-01-01", "2023-01-00",
             "２023-01-01", ""],
    "date-time": ["1990-02-31T15:59:59Z", "1998-12-31T23:58:60Z", "1998-11-30T23:59:60Z", "1990-12-31 15:59:59Z", "1990-12-31T15:59:59",
                  "1990-12-31T24:00:00Z", "1990-12-31T10:00:00+24:00", "1990-12-31T23:59:60+01:00", "1990-12-31T23:59:59.Z"],
    "duration": ["P", "PT", "P1YT", "P2D1Y", "P1Y2W", "PT1D", "P1D2H", "PT0.5S", "P1Y2D", "PT1H2S", "-P1D", "P1", ""],
    "email": ["2962", ".a@b", "a.@b", "a..b@c", "a@", "@b", "a b@c", "a@b_c", "a@[127.0.0.300]", '"a"b@c', '"a@b', "a@-b", "a@b-",
              "a@b..c", "é@b",
              "a" * 65 + "@b", '"' + "a" * 63 + '"@b', "a@" + "b" * 64, "a@[IPv6:1:2:3:4:5:6:7::]", "a@b\n"],
    "hostname": ["", "-a", "a-", "a_b", "a..b", ".a", "a.", "xn--X", "XN--aa---o47jg78q",
                 "a" * 64, ".".join(["a" * 63] * 3 + ["b" * 62]), "1.2.3.4",
                 "ab--c", "é"],
    "idn-email": ["2962", "user＠example.com", "é" * 33 + "@a.b", "a@-é", "a@b é"],
    "idn-hostname": ["", "〮실례.테스트", "실〮례", "-hello", "a·l", "l·", "α͵S", "・", "ב٠۰", "aא", "क‍ष", "xn--X", "ü" * 60, "a..b", ".", "a.",
                     "ab--é", "É",
                     "e\u0301", "\u0301e", "a" * 64, "ー̀"],
    "ipv4": ["127.0.0.0.1", "256.0.0.1", "127.0", "0x7f.0.0.1", "01.2.3.4", "1.2.3.4\n", " 1.2.3.4", "1২7.0.0.1"],
    "ipv6": ["12345::", "1:2:3:4:5:6:7", "1::2::3", ":1", "1:", "::1%eth0", "::1/64", "1:2:3:4:5:6:7:8:9", "::ffff:192.0.2.01",
             "1:2:3:4:5:6:7:1.2.3.4"],
    "iri": ["/abc", "http://[2001:db8::7", "http://a b", "http://x/\ue000", "http://x/\u200e", "\\\\x"],
    "iri-reference": ["\\\\WINDOWS", "a:b:c d", "1:2", "%zz"],
    "json-pointer": ["/foo/bar~", "/~2", "a", "#", "#/", "/~0~"],
    "regex": ["^(abc]", "a**", "(", ")", "[z-a]", "\\a", "{1}", "a{2,1}", "[", "(?<a", "^*", "a{9,8}", "[9-2]", "]", "\\", "(?:a"],
    "relative-json-pointer": ["", "/foo", "-1", "+1", "0##", "01", "0a", "01#"],
    "time": ["24:00:00Z", "00:60:00Z", "00:00:61Z", "22:59:60Z", "23:58:60Z", "23:59:60+01:00", "23:59:60+00:30", "12:00:00",
             "01:02:03+24:00",
             "01:02:03Z+00:30", "8:3:6Z", "01:01:01,1111"],
    "uri": ["//foo.bar/", "/abc", "abc", "http:// x", ":// x", "bar,baz:foo", "https://[@x/", "http://x/<>", "http://x/%6G",
            "1http://x", "http://x:a/",
            "http:/[::1]", "http://é", "http://[::ffff:01.2.3.4]", "a\\b:c", "http://x#a#b"],
    "uri-reference": ["\\\\WINDOWS", "abc\\", "#a#b", "é", "1:2", ":a", "%"],
    "uri-template": ["{", "{}", "a}b", "{a,,b}", "{v:0}", "{v:10000}", "{a..b}", "a b", "{a,}", "{var=def}", "{!a}", "%4", "<"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4ga-73b441d16380",
             "urn:uuid:2eb8aa08-aa98-11ea-b4aa-73b441d16380", ""],
}


def accepts(name: str, text: str) -> bool:
    return language(name).match(text.encode()) >= 0


def language(name: str) -> Dfa:
    dfa = string_format(name)
    assert dfa is not None
    return dfa


def random_words(dfa: Dfa, count: int, seed: int, longest: int = 40) -> list[str]:
    """Accepted texts by a random walk that heads for the nearest end once ``longest`` bytes are read."""
    source = random.Random(seed)
    spelled: dict[int, list[int]] = {}
    for value in range(256):
        spelled.setdefault(int(dfa.byte_class[value]), []).append(value)
    rows = [[(number, target) for number, target in enumerate(row) if target >= 0] for row in dfa.table.tolist()]
    distance = np.where(dfa.accept >= 0, 0, dfa.states)
    for _ in range(dfa.states):
        nearer = np.minimum(distance, np.where(dfa.table >= 0, distance[dfa.table], dfa.states).min(axis=1) + 1)
        if (nearer == distance).all():
            break
        distance = nearer
    return [_walk(dfa, rows, distance.tolist(), spelled, source, longest) for _ in range(count)]


def _walk(dfa: Dfa, rows: list[list[tuple[int, int]]], distance: list[int], spelled: dict[int, list[int]], source: random.Random,
          longest: int) -> str:
    state, text = dfa.start, bytearray()
    while True:
        moves = rows[state]
        if dfa.accept[state] >= 0 and (not moves or len(text) >= longest or source.random() < 0.1):
            return text.decode()
        if len(text) >= longest:
            moves = [move for move in moves if distance[move[1]] < distance[state]]
        number, state = source.choice(moves)
        text.append(source.choice(spelled[number]))


@pytest.mark.parametrize("name", sorted(KNOWN_FORMATS))
def test_examples(name: str) -> None:
    assert [text for text in VALID[name] if not accepts(name, text)] == []
    assert [text for text in INVALID[name] if accepts(name, text)] == []


@pytest.mark.parametrize("name", sorted(KNOWN_FORMATS))
def test_language_is_minimal_and_built_once(name: str) -> None:
    assert string_format(name) is string_format(name)
    assert minimize_dfa(language(name)).states == language(name).states
    assert set(np.unique(language(name).accept)) <= {-1, 0}


@pytest.mark.parametrize("name", ["unknown", "ip-address", "host-name", "color", "phone", "int32", "Date", ""])
def test_other_names_are_annotations(name: str) -> None:
    assert string_format(name) is None


def test_date_is_the_gregorian_calendar() -> None:
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(33):
                try:
                    datetime.date(year, month, day)
                    exists = True
                except ValueError:
                    exists = False
                assert accepts("date", f"{year:04}-{month:02}-{day:02}") is exists


def test_leap_seconds_need_2359_in_utc() -> None:
    checked = 0
    for hour in range(24):
        for minute in (0, 29, 30, 59):
            for offset in range(-23 * 60 - 30, 24 * 60, 30):
                shift = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
                utc = (60 * hour + minute - offset) % (24 * 60)
                assert accepts("time", f"{hour:02}:{minute:02}:60{shift}") is (utc == 23 * 60 + 59)
                checked += utc == 23 * 60 + 59
    assert checked == 95


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789.", max_size=15) | st.ip_addresses(v=4).map(str))
def test_ipv4_agrees_with_ipaddress(text: str) -> None:
    try:
        ipaddress.IPv4Address(text)
        valid = True
    except ValueError:
        valid = False
    assert accepts("ipv4", text) is valid


groups = st.lists(st.sampled_from(["0", "ab", "FFFF", "12345", "", "1.2.3.4"]), max_size=9).map(":".join)


@settings(max_examples=400, deadline=None)
@given(groups | st.tuples(groups, groups).map("::".join) | st.ip_addresses(v=6).map(str))
def test_ipv6_agrees_with_ipaddress(text: str) -> None:
    try:
        ipaddress.IPv6Address(text)
        valid = True
    except ValueError:
        valid = False
    assert accepts("ipv6", text) is valid


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aZ09-", min_size=1, max_size=8) | st.integers(28, 66).map("x".__mul__), min_size=1, max_size=9).map(".".join))
def test_hostname_is_rfc_1123_for_names_of_few_short_labels(text: str) -> None:
    labels = text.split(".")
    decimal = len(labels) == 4 and all(label.isdigit() and len(label) <= 3 for label in labels)
    valid = len(text) <= 253 and not decimal and all(
        len(label) <= 63 and label[0] != "-" and label[-1] != "-" and label[2:4] != "--" for label in labels)
    if len(labels) <= 7 and all(len(label) <= 31 for label in labels):
        assert accepts("hostname", text) is valid
    else:
        assert valid or not accepts("hostname", text)


def test_internationalized_names_are_valid_idna() -> None:
    idna = pytest.importorskip("idna")
    words = random_words(language("idn-hostname"), 1500, seed=3)
    for word in words:
        assert len(idna.encode(word.lower() if word.isascii() else _lower_ascii_labels(word), strict=True)) <= 253
    assert sum(not word.isascii() for word in words) > 500


def _lower_ascii_labels(name: str) -> str:
    """Host names ignore case, IDNA's U-labels have none: an ASCII label may have capitals, another may not."""
    return ".".join(label.lower() if label.isascii() else label for label in name.split("."))


def test_punycode_of_the_longest_labels_fits() -> None:
    source = random.Random(11)
    letters = "ßÿžßαωяи" + "一龥가힣ーんए"
    for _ in range(3000):
        label = "".join(source.choice(letters) for _ in range(10))
        assert len("xn--" + label.encode("punycode").decode()) <= 63


@pytest.mark.parametrize("name", sorted(KNOWN_FORMATS))
def test_random_words_are_valid_by_jsonschema_rs(name: str) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    words = random_words(language(name), 400, seed=7)
    # The suite has domains of idn-email out of NFC valid; this validator does not.
    assert [word for word in words if not validator.is_valid(word) and not (name == "idn-email" and _has_mark(word))] == []
    assert len(set(words)) > 100


def _has_mark(text: str) -> bool:
    return any(0x300 <= ord(letter) < 0x370 for letter in text)


def test_random_words_are_valid_by_jsonschema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for name in ("date", "email", "ipv4", "ipv6", "uuid"):
        for word in random_words(language(name), 200, seed=5):
            if not word.startswith("0000-"):  # the year 0 of RFC 3339 is not in Python's datetime
                checker.check(word, name)


def test_suite_examples() -> None:
    if not SUITE.exists():
        pytest.skip("the development half of the JSON Schema test suite is not beside this checkout")
    checked = 0
    with gzip.open(SUITE) as lines:
        cases = [json.loads(line) for line in lines]
    for case in cases:
        schema = case["schema"]
        if not isinstance(schema, dict) or schema.get("format") not in KNOWN_FORMATS or set(schema) - {"$schema", "format"}:
            continue
        for test in case["tests"]:
            if isinstance(test["data"], str) and "annotation" not in test["what"]:
                accepted = accepts(schema["format"], test["data"])
                assert accepted == test["valid"] or (not accepted and schema["format"] in NARROWER), (schema["format"], test)
                checked += 1
    assert checked > 300


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), st.text("ab-.", max_size=16))
def test_at_most_octets(octets: int, text: str) -> None:
    whole = language("hostname")
    assert (at_most_octets(whole, octets).match(text.encode()) >= 0) is (len(text) <= octets and whole.match(text.encode()) >= 0)


def test_documented_states() -> None:
    rows = [line.split("|") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {row[1].strip().strip("`"): int(row[3]) for row in rows}
    assert documented == {name: language(name).states for name in KNOWN_FORMATS}
