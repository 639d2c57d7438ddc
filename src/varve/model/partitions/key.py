"""`PartitionKey`, the identity of one partition: named, typed values, which convert to text and back exactly.

Not here: dimensions and their keys (dimension.py), and how Dagster spells a key (partitioning.py).
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import pendulum

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable


Value: TypeAlias = "str | int | float | dt.date | Interval | PartitionKey"
K = TypeVar("K", bound="PartitionKey")

# How the only partition of a dataset without dimensions is spelled, in paths and in texts; every other path has a `=`.
WHOLE = "all"

# The characters that Hive and Spark escape in a partition path (Spark's class ExternalCatalogUtils).
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(0x20)))
_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in _ESCAPED}
# In the text of a rich key a comma separates the fields, so that it is escaped within a field.
_FIELD_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in "%,"}


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A half-open span of time as a value of a key, in UTC, for example from 2 pm yesterday to 2 pm today."""

    start: pendulum.DateTime
    end: pendulum.DateTime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            object.__setattr__(self, name, pendulum.instance(getattr(self, name)).in_timezone("UTC"))
        if self.end <= self.start:
            raise VarveError(f"interval: its end {self.end} is not after its start {self.start}.")

    def __str__(self) -> str:
        return f"{_instant(self.start)}/{_instant(self.end)}"


class PartitionKeyType(type):
    """The metaclass of `PartitionKey`: it types the fields of subclasses, and refuses those that run their own code.

    Keys are made in the scheduler and the web server, where code of users must not run.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> PartitionKeyType:
        """Python calls this for each class statement. Raises VarveError that names what a key class may not have."""
        root = next((base for base in bases if isinstance(base, PartitionKeyType)), None)
        if root is None:
            return super().__new__(mcs, name, bases, namespace)
        if mcs is not PartitionKeyType or len(bases) > 1:
            raise VarveError(f"partition key {name}: it can have no other base and no metaclass of its own.")
        if root.field_types:
            raise VarveError(f"partition key {name}: {root.__name__} has its fields; a key class is not extended.")
        fields = list(namespace.get("__annotations__", {}))
        taken = {*vars(root), *vars(object)} - _OVERRIDABLE - _OF_PYTHON
        if refused := sorted(key for key in {*namespace, *fields} if key in taken or _is_hook(key)):
            raise VarveError(
                f"partition key {name}: it can have typed fields, methods and __str__, but not {', '.join(refused)}: "
                "a key runs no code of its own when it is made, compared or copied."
            )
        defaults = {field: namespace.pop(field) for field in fields if field in namespace}
        key_class = super().__new__(mcs, name, bases, {**namespace, "__slots__": ()})
        key_class.field_types = _field_types(key_class, fields)
        key_class.field_defaults = {field: _typed(key_class, field, value) for field, value in defaults.items()}
        for place, field in enumerate(fields):
            type.__setattr__(key_class, field, property(_getter(place)))
        return key_class

    field_types: dict[str, type] = {}  # noqa: RUF012 - each class has its own
    field_defaults: dict[str, Any] = {}  # noqa: RUF012

    def __call__(cls: type[K], *args: Any, **kwargs: Any) -> K:  # type: ignore[misc]
        """`Position(1, 2, z=3)`: fields in their order or by name. Raises VarveError for missing or wrong fields."""
        types = cls.field_types
        if not types:
            return cls.of(**dict(*args, **kwargs))  # type: ignore[return-value]
        given = {**cls.field_defaults, **dict(zip(types, args, strict=False)), **kwargs}
        if len(args) > len(types) or given.keys() != types.keys():
            raise VarveError(
                f"partition key {cls.__name__}: its fields are {', '.join(types)}; "
                f"given {', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])}."
            )
        return _made(cls, tuple((name, _typed(cls, name, given[name])) for name in types))


class PartitionKey(metaclass=PartitionKeyType):
    """One point of the product of a dataset's dimensions: named, typed values in the dataset's order of dimensions.

    A key is immutable, hashable, ordered and equal by value. A subclass (a rich key) has typed fields, and can be the
    value of one dimension:

        class Position(PartitionKey):
            x: float
            y: float
            z: float = 0.0

    Attributes:
        fields: pairs of a name and its value: a str, int, float, date, `Interval` or rich key.
    """

    __slots__ = ("_path", "fields")
    if TYPE_CHECKING:
        fields: tuple[tuple[str, Value], ...]
        _path: str

    @classmethod
    def of(cls, /, **values: Value) -> PartitionKey:
        """The key with these values, in this order: `PartitionKey.of(day=date(2013, 1, 5), origin="EWR")`."""
        return _made(PartitionKey, tuple((name, checked(value)) for name, value in values.items()))

    @property
    def values(self) -> tuple[Value, ...]:
        """The values alone, in the order of the dimensions."""
        return tuple(value for _, value in self.fields)

    @property
    def path(self) -> str:
        """The key as a Hive path and as the catalog spells it: `day=2013-01-05/origin=EWR`; without fields `all`."""
        try:
            return self._path
        except AttributeError:
            # A publish asks for it five times, and it costs ten times what a look does.
            path = "/".join([f"{name}={escape(text_of(value))}" for name, value in self.fields]) or WHOLE
            _set_path(self, path)
            return path

    @property
    def text(self) -> str:
        """The texts of the values, joined by commas: a rich key as the value of one dimension."""
        return ",".join(text_of(value).translate(_FIELD_ESCAPES) for _, value in self.fields)

    def __getitem__(self, name: str) -> Value:
        for field, value in self.fields:
            if field == name:
                return value
        raise KeyError(name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __lt__(self, other: PartitionKey) -> bool:
        return self.fields < other.fields if type(other) is type(self) else NotImplemented

    def __le__(self, other: PartitionKey) -> bool:
        return self.fields <= other.fields if type(other) is type(self) else NotImplemented

    def __gt__(self, other: PartitionKey) -> bool:
        return self.fields > other.fields if type(other) is type(self) else NotImplemented

    def __ge__(self, other: PartitionKey) -> bool:
        return self.fields >= other.fields if type(other) is type(self) else NotImplemented

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} is immutable")

    def __reduce__(self) -> tuple[Callable[..., PartitionKey], tuple[object, ...]]:
        return _remade, (type(self), self.fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.fields)})"

    def __str__(self) -> str:
        return self.text if type(self).field_types else self.path


_set_fields = vars(PartitionKey)["fields"].__set__
_set_path = vars(PartitionKey)["_path"].__set__
# What a field of a rich key may be, beside a tuple of these.
_KINDS: tuple[type, ...] = (str, int, float, bool, dt.date, dt.datetime, Interval, PartitionKey)
_BOOLEANS = {False: "false", True: "true"}
_OVERRIDABLE = {"__str__", "__repr__", "__doc__", "__module__"}
_OF_PYTHON = {"__annotations__", "__qualname__", "__firstlineno__", "__static_attributes__", "__annotate_func__"}


def made(fields: tuple[tuple[str, Value], ...]) -> PartitionKey:
    """The key with these fields, without checks: for values of dimensions, a hundred thousand at a time."""
    key = object.__new__(PartitionKey)
    _set_fields(key, fields)
    return key


def checked(value: Value) -> Value:
    """The value as a key holds it. Raises VarveError where no key can have its type or its characters."""
    kind = type(value)
    if kind is str:
        return _checked_text(value)  # type: ignore[arg-type]
    if kind is int or isinstance(value, Interval | PartitionKey):
        return value
    if isinstance(value, float) and kind is float and math.isfinite(value):
        # Turns -0.0 into 0.0, to which it is equal.
        return value + 0.0
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None and not value.microsecond and 1 < value.year < 9999:
            return dt.datetime.fromtimestamp(value.timestamp(), tz=dt.UTC)
    elif isinstance(value, dt.date):
        return dt.date(value.year, value.month, value.day)
    raise VarveError(
        f"{value!r} is no value of a partition key: those are texts, whole numbers, finite floats, dates, moments "
        "in whole seconds with a time zone, intervals and subclasses of PartitionKey."
    )


def text_of(value: Value | tuple[Any, ...]) -> str:
    """The one text of a value, before any escaping. The __str__ of a rich key has no influence on it."""
    if type(value) is str:
        return value
    if isinstance(value, PartitionKey):
        return value.text
    if isinstance(value, tuple):
        return ",".join(text_of(part).translate(_FIELD_ESCAPES) for part in value)
    if isinstance(value, dt.datetime):
        # As Spark spells a TIMESTAMP in a session of UTC.
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    if type(value) is bool:
        return _BOOLEANS[value]
    return repr(value) if type(value) is float else str(value)


def value_of(text: str, kind: type) -> Value:
    """The value of a type from its text. Raises ValueError where the text is not exactly `text_of` that value."""
    value: Value
    if kind is str:
        return text
    if kind is dt.date:
        value = dt.date.fromisoformat(text)
    elif kind is dt.datetime:
        value = dt.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=dt.UTC)
    elif kind is bool:
        value = text == _BOOLEANS[True]
    elif get_origin(kind) is tuple:
        parts = zip(text.split(","), get_args(kind), strict=True)
        value = tuple(value_of(unquote(part), part_kind) for part, part_kind in parts)  # type: ignore[assignment]
    elif kind is int or kind is float:
        value = kind(text)
    elif kind is Interval:
        start, _, end = text.partition("/")
        value = Interval(_parsed(start), _parsed(end))
    else:
        texts = [unquote(part) for part in text.split(",")]
        types = kind.field_types  # type: ignore[attr-defined]
        value = kind(*[value_of(part, field_type) for part, field_type in zip(texts, types.values(), strict=True)])
    if text_of(value) != text:
        raise ValueError(text)
    return value


def plain(value: Value) -> str | int | dt.date:
    """The value as a partition column holds it: rich keys, intervals and floats become text."""
    return value if isinstance(value, str | int | dt.date) else text_of(value)


def escape(text: str) -> str:
    """One value as Hive and Spark write it in a path: `2013-01-05T13:00` -> `2013-01-05T13%3A00`."""
    return text.translate(_ESCAPES)


def parse_path(path: str) -> tuple[tuple[str, str], ...]:
    """Pairs of a name and a text from a `PartitionKey.path`; the dimensions turn the texts into values."""
    if path == WHOLE:
        return ()
    pairs = (segment.partition("=") for segment in path.split("/"))
    return tuple((name, unquote(value) if "%" in value else value) for name, _, value in pairs)


def _made(cls: type[K], fields: tuple[tuple[str, Value], ...]) -> K:
    key = object.__new__(cls)
    _set_fields(key, fields)
    return key


def _remade(cls: type[PartitionKey], fields: tuple[tuple[str, Value], ...]) -> PartitionKey:
    return cls(**dict(fields))


def _checked_text(text: str) -> str:
    if bad := sorted({char for char in text if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or _is_surrogate(char)}):
        raise VarveError(
            f"{text!r} is no value of a partition key: it has {', '.join(map(repr, bad))}, and control characters show "
            "nowhere. Take them out where the key is made."
        )
    return text


def _is_surrogate(char: str) -> bool:
    return "\ud800" <= char <= "\udfff"


def _typed(cls: type, name: str, value: Any) -> Value:
    """The value as the type of the field; a whole number becomes a float where the field is a float."""
    kind = cls.field_types[name]  # type: ignore[attr-defined]
    try:
        return _as_kind(kind, value)
    except TypeError:
        raise VarveError(f"partition key {cls.__name__}: {name} is a {_kind_name(kind)}, given {value!r}.") from None
    except VarveError as error:
        raise VarveError(f"partition key {cls.__name__}: {name}: {error}") from None


def _as_kind(kind: Any, value: Any) -> Value:
    """The value as a type that a field may have. Raises TypeError for one of another type, VarveError as `checked`."""
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if not isinstance(value, tuple | list) or len(value) != len(kinds):
            raise TypeError
        return tuple([_as_kind(part_kind, part) for part_kind, part in zip(kinds, value, strict=True)])  # type: ignore[return-value]
    if kind is bool and type(value) is bool:
        return value
    typed_value = checked(float(value) if kind is float and type(value) is int else value)
    if type(typed_value) is not kind:
        raise TypeError
    return typed_value


def _kind_name(kind: Any) -> str:
    return f"tuple[{', '.join(map(_kind_name, get_args(kind)))}]" if get_origin(kind) is tuple else kind.__name__


def _is_kind(kind: Any) -> bool:
    """Whether a field may have this type; a tuple names the type of each of its parts: `tuple[int, str]`."""
    if get_origin(kind) is tuple:
        return bool(get_args(kind)) and all(map(_is_kind, get_args(kind)))
    return isinstance(kind, type) and (kind in _KINDS or issubclass(kind, PartitionKey))


def _field_types(cls: type, fields: list[str]) -> dict[str, type]:
    hints = get_type_hints(cls)
    if not fields:
        raise VarveError(f"partition key {cls.__name__}: it has no fields; write them as `x: float`.")
    for field in fields:
        if not _is_kind(hints[field]):
            kinds = ", ".join(kind.__name__ for kind in _KINDS)
            raise VarveError(
                f"partition key {cls.__name__}: {field} is {hints[field]}; fields are of {kinds} and tuples of them, "
                "such as tuple[int, str]."
            )
    return {field: hints[field] for field in fields}


def _getter(place: int) -> Callable[[PartitionKey], Value]:
    return lambda key: key.fields[place][1]


def _is_hook(name: str) -> bool:
    """Whether Python itself would call an attribute with this name."""
    return name.startswith("__") and name.endswith("__") and name not in _OVERRIDABLE | _OF_PYTHON


def _instant(moment: pendulum.DateTime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _parsed(text: str) -> pendulum.DateTime:
    moment = pendulum.parse(text)
    if not isinstance(moment, pendulum.DateTime):
        raise ValueError(text)  # noqa: TRY004 - the text is wrong
    return moment
