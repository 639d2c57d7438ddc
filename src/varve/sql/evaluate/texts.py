"""Spark's text functions, over columns.

Not here: all other functions (scalars.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import counted
from varve.sql.evaluate.calls import named
from varve.sql.evaluate.regexes import java_regex, like_pattern, one_line, searched
from varve.sql.evaluate.vector import BOOLEAN, DOUBLE, NULL, STRING, CannotEvaluate, Scalar, Vector, mapped_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.sql.evaluate.evaluation import Evaluation

# No key is that long: a text of gigabytes is not made to find that out.
_LONGEST = 100_000


def _text(name: str, takes: str, function: Callable[..., object], result: str = STRING) -> Scalar:
    """A function of texts (t) and whole numbers (n), in the order of `takes`; those after | may be left out.

    As in Spark, a number, a date or a moment becomes a text where a text is wanted.
    """
    needed, _, more = takes.partition("|")

    def text(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
        if not len(needed) <= len(arguments) <= len(needed + more):
            raise CannotEvaluate(node, f"{name} of {counted(len(arguments), 'argument')}")
        given = [
            as_text(ev, node, argument) if wanted == "t" else argument
            for argument, wanted in zip(arguments, needed + more, strict=False)
        ]
        for argument, wanted in zip(given, needed + more, strict=False):
            if wanted == "n" and not (argument.is_integer or argument.type == NULL):
                raise CannotEvaluate(node, f"{name} of something else than a whole number")
        return mapped_texts(function, result, given)

    return text


def as_text(ev: Evaluation, node: exp.Expr | None, value: Vector) -> Vector:
    """The column as Spark makes a text of it where a text is wanted."""
    if value.type in {STRING, NULL}:
        return value
    if value.type == DOUBLE:
        raise CannotEvaluate(node, "a double as text")
    return ev.cast(value, STRING)


def _concat(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    texts = [ev.cast(as_text(ev, node, argument), STRING) for argument in arguments]
    return mapped_texts(lambda *parts: "".join(parts), STRING, texts)


def _ascii(function: Callable[[str], str]) -> Callable[[str], str]:
    def ascii_only(text: str) -> str:
        if not text.isascii():
            raise CannotEvaluate(None, "letters beyond ASCII")
        return function(text)

    return ascii_only


def _substring(text: str, start: int, length: int = 2**31) -> str:
    """SUBSTRING: positions count from 1 (0 means 1), negative ones from the end, as in UTF8String.substringSQL."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(first, 0) : max(first + max(length, 0), 0)]


def _refuse_long(length: int) -> None:
    if length > _LONGEST:
        raise CannotEvaluate(None, f"a text of more than {_LONGEST:,} characters")


def _repeated(text: str, times: int) -> str:
    _refuse_long(len(text) * times)
    return text * max(times, 0)


def _with_new(text: str, old: str, new: str = "") -> str:
    if not old:
        return text
    _refuse_long(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _padded(*, left: bool) -> Callable[[str, int, str], str]:
    def pad(text: str, length: int, fill: str = " ") -> str:
        if length <= len(text) or not fill:
            return text[: max(length, 0)]
        missing = length - len(text)
        filled = _repeated(fill, -(-missing // len(fill)))[:missing]
        return filled + text if left else text + filled

    return pad


def _pad(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    if len(arguments) < 2:
        raise CannotEvaluate(node, "a pad without a length")
    return _text("LPAD", "tn|t", _padded(left=bool(node.args.get("is_left"))))(ev, node, *arguments)


def _trim(ev: Evaluation, node: exp.Expr, text: Vector, *others: Vector) -> Vector:
    if others or node.args.get("collation") is not None:
        raise CannotEvaluate(node, "TRIM of other characters")
    position = str(node.args.get("position") or "BOTH").upper()
    strip = {"LEADING": str.lstrip, "TRAILING": str.rstrip}.get(position, str.strip)
    return _text("TRIM", "t", lambda value: strip(value, " "))(ev, node, text)


def like(ev: Evaluation, node: exp.Expr, text: Vector, pattern: Vector, escape: str = "\\") -> Vector:
    """LIKE, whose patterns may contain escapes."""
    return mapped_texts(
        lambda value, of: like_pattern(of, escape).fullmatch(value) is not None, BOOLEAN,
        [as_text(ev, node, text), as_text(ev, node, pattern)],
    )  # fmt: skip


def _replaced(text: str, pattern: str, new: str = "") -> str:
    if "$" in new or "\\" in new:
        raise CannotEvaluate(None, "a replacement with groups")
    # Between any two characters may be a match.
    _refuse_long(len(text) + (len(text) + 1) * len(new))
    regex = java_regex(pattern)
    if max(text, default="") > "\uffff" and regex.search("") is not None:
        raise CannotEvaluate(None, "a match of nothing, which Java finds within a sign of two units as well")
    return regex.sub(new, one_line(text))


def _regexp_replace(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    if any(node.args.get(name) for name in ("position", "occurrence", "modifiers")) or len(arguments) != 3:
        raise CannotEvaluate(node, "REGEXP_REPLACE from a place on")
    return _text("REGEXP_REPLACE", "ttt", _replaced)(ev, node, *arguments)


def _position(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    """INSTR, LOCATE and POSITION: the position counted from 1; 0 where the part does not occur."""
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        raise CannotEvaluate(node, "LOCATE from a place on")
    return _text("INSTR", "tt", lambda value, part: value.find(part) + 1, "int")(
        ev, node, text, named(ev, node, "substr")
    )


def _split_part(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    def part(value: str, delimiter: str, place: int) -> str:
        if not delimiter or place == 0:
            raise CannotEvaluate(node, "SPLIT_PART of nothing")
        parts = value.split(delimiter)
        start = place - 1 if place > 0 else len(parts) + place
        return parts[start] if 0 <= start < len(parts) else ""

    return _text("SPLIT_PART", "ttn", part)(ev, node, text, named(ev, node, "delimiter"), named(ev, node, "part_index"))


def _substring_index(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    def part(value: str, delimiter: str, count: int) -> str:
        if not delimiter or not count:
            return ""
        # Each is looked for right behind the begin of the one before: '--' is twice in '---'.
        at = -1 if count > 0 else len(value)
        for _ in range(abs(count)):
            at = value.find(delimiter, at + 1) if count > 0 else value.rfind(delimiter, 0, at - 1 + len(delimiter))
            if at < 0:
                return value
        return value[:at] if count > 0 else value[at + len(delimiter) :]

    return _text("SUBSTRING_INDEX", "ttn", part)(ev, node, text, named(ev, node, "delimiter"), named(ev, node, "count"))


def _piped(ev: Evaluation, node: exp.Expr, *parts: Vector) -> Vector:
    # To Spark, `a || b - 1` takes 1 from the whole, and to the parser from b.
    if isinstance(node.expression, exp.Add | exp.Sub):
        raise CannotEvaluate(node, "|| and a sum without brackets")
    return _concat(ev, node, *parts)


TEXTS: dict[type[exp.Expr], Scalar] = {
    exp.Substring: _text("SUBSTRING", "tn|n", _substring),
    exp.Left: _text("LEFT", "tn", lambda text, length: text[: max(length, 0)]),
    exp.Right: _text("RIGHT", "tn", lambda text, length: text[-length:] if length > 0 else ""),
    exp.Upper: _text("UPPER", "t", _ascii(str.upper)),
    exp.Lower: _text("LOWER", "t", _ascii(str.lower)),
    exp.Length: _text("LENGTH", "t", len, "int"),
    exp.Reverse: _text("REVERSE", "t", lambda text: text[::-1]),
    exp.Repeat: _text("REPEAT", "tn", _repeated),
    exp.Replace: _text("REPLACE", "tt|t", _with_new),
    exp.StartsWith: _text("STARTSWITH", "tt", str.startswith, BOOLEAN),
    exp.EndsWith: _text("ENDSWITH", "tt", str.endswith, BOOLEAN),
    exp.Contains: _text("CONTAINS", "tt", lambda text, part: part in text, BOOLEAN),
    exp.Like: like,
    exp.RegexpLike: _text("RLIKE", "tt", lambda text, pattern: searched(text, pattern) is not None, BOOLEAN),
    exp.RegexpReplace: _regexp_replace,
    exp.StrPosition: _position,
    exp.SplitPart: _split_part,
    exp.SubstringIndex: _substring_index,
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.Concat: _concat,
    exp.DPipe: _piped,
}
