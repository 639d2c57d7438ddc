"""Spark's functions of texts, over columns.

Not here: every other function (scalars.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.evaluate.regexes import java_regex, like_pattern, one_line, searched
from varve.sql.evaluate.vector import BOOLEAN, DOUBLE, NULL, STRING, CannotEvaluate, Scalar, Vector, mapped_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.sql.evaluate.evaluation import Evaluation


def _text(name: str, function: Callable[..., object], result: str = STRING) -> Scalar:
    def text(_: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
        if any(each.type not in (STRING, NULL) and not each.is_integer for each in arguments) or (
            arguments[0].type not in (STRING, NULL)
        ):
            raise CannotEvaluate(node, f"{name} of something else than texts")
        return mapped_texts(function, result, arguments)

    return text


def _concat(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    if any(each.type == DOUBLE for each in arguments):
        raise CannotEvaluate(node, "a double as text")
    return mapped_texts(lambda *texts: "".join(texts), STRING, [ev.cast(each, STRING) for each in arguments])


def _ascii(function: Callable[[str], str]) -> Callable[[str], str]:
    def ascii_only(text: str) -> str:
        if not text.isascii():
            raise CannotEvaluate(None, "letters beyond ASCII")
        return function(text)

    return ascii_only


def _substring(text: str, start: int, length: int = 2**31) -> str:
    """Places count from 1, 0 is 1 too, and negative ones from the end, as in UTF8String.substringSQL."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(first, 0) : max(first + max(length, 0), 0)]


def _padded(*, left: bool) -> Callable[[str, int, str], str]:
    def pad(text: str, length: int, fill: str = " ") -> str:
        if length <= len(text) or not fill:
            return text[: max(length, 0)]
        missing = length - len(text)
        filled = (fill * missing)[:missing]
        return filled + text if left else text + filled

    return pad


def _pad(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    if len(arguments) < 2:
        raise CannotEvaluate(node, "a pad without a length")
    text = arguments[0] if arguments[0].type == STRING else ev.cast(arguments[0], STRING)
    return _text("LPAD", _padded(left=bool(node.args.get("is_left"))))(ev, node, text, *arguments[1:])


def _trim(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    if node.args.get("expression") is not None or node.args.get("collation") is not None:
        raise CannotEvaluate(node, "TRIM of other characters")
    position = str(node.args.get("position") or "BOTH").upper()
    strip = {"LEADING": str.lstrip, "TRAILING": str.rstrip}.get(position, str.strip)
    return _text("TRIM", lambda value: strip(value, " "))(ev, node, text)


def like(_: Evaluation, node: exp.Expr, text: Vector, pattern: Vector, escape: str = "\\") -> Vector:
    """LIKE, whose patterns may have escapes."""
    if {text.type, pattern.type} - {STRING, NULL}:
        raise CannotEvaluate(node, "LIKE of something else than texts")
    return mapped_texts(
        lambda value, of: like_pattern(of, escape).fullmatch(value) is not None, BOOLEAN, [text, pattern]
    )


def _replaced(text: str, pattern: str, new: str = "") -> str:
    if "$" in new or "\\" in new:
        raise CannotEvaluate(None, "a replacement with groups")
    return java_regex(pattern).sub(new, one_line(text))


def _regexp_replace(ev: Evaluation, node: exp.Expr, *arguments: Vector) -> Vector:
    if any(node.args.get(name) for name in ("position", "occurrence", "modifiers")) or len(arguments) != 3:
        raise CannotEvaluate(node, "REGEXP_REPLACE from a place on")
    return _text("REGEXP_REPLACE", _replaced)(ev, node, *arguments)


def _position(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    """INSTR, LOCATE and POSITION: from 1, and 0 where it is not there."""
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        raise CannotEvaluate(node, "LOCATE from a place on")
    return _text("INSTR", lambda value, part: value.find(part) + 1, "int")(ev, node, text, ev.of(node.args["substr"]))


def _split_part(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    def part(value: str, delimiter: str, place: int) -> str:
        if not delimiter or place == 0:
            raise CannotEvaluate(node, "SPLIT_PART of nothing")
        parts = value.split(delimiter)
        start = place - 1 if place > 0 else len(parts) + place
        return parts[start] if 0 <= start < len(parts) else ""

    return _text("SPLIT_PART", part)(ev, node, text, ev.of(node.args["delimiter"]), ev.of(node.args["part_index"]))


def _substring_index(ev: Evaluation, node: exp.Expr, text: Vector) -> Vector:
    def part(value: str, delimiter: str, count: int) -> str:
        if not delimiter or not count:
            return ""
        parts = value.split(delimiter)
        return delimiter.join(parts[:count] if count > 0 else parts[count:])

    return _text("SUBSTRING_INDEX", part)(ev, node, text, ev.of(node.args["delimiter"]), ev.of(node.args["count"]))


TEXTS: dict[type[exp.Expr], Scalar] = {
    exp.Substring: _text("SUBSTRING", _substring),
    exp.Left: _text("LEFT", lambda text, length: text[: max(length, 0)]),
    exp.Right: _text("RIGHT", lambda text, length: text[-length:] if length > 0 else ""),
    exp.Upper: _text("UPPER", _ascii(str.upper)),
    exp.Lower: _text("LOWER", _ascii(str.lower)),
    exp.Length: _text("LENGTH", len, "int"),
    exp.Reverse: _text("REVERSE", lambda text: text[::-1]),
    exp.Repeat: _text("REPEAT", lambda text, times: text * max(times, 0)),
    exp.Replace: _text("REPLACE", lambda text, old, new="": text.replace(old, new) if old else text),
    exp.StartsWith: _text("STARTSWITH", str.startswith, BOOLEAN),
    exp.EndsWith: _text("ENDSWITH", str.endswith, BOOLEAN),
    exp.Contains: _text("CONTAINS", lambda text, part: part in text, BOOLEAN),
    exp.Like: like,
    exp.RegexpLike: _text("RLIKE", lambda text, pattern: searched(text, pattern) is not None, BOOLEAN),
    exp.RegexpReplace: _regexp_replace,
    exp.StrPosition: _position,
    exp.SplitPart: _split_part,
    exp.SubstringIndex: _substring_index,
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.Concat: _concat,
    exp.DPipe: _concat,
}
