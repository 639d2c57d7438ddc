"""The cache of what was inferred: what makes a file anew, what does not, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot

from pipeline_defs.sql.cache import Cache, Entry, entry_of, key_of
from pipeline_defs.sql.dependencies import dependencies
from pipeline_defs.sql.inference import qualified
from pipeline_defs.sql.reading import Bindings, readings
from tests.pipeline_defs.sql.constructs import constructs
from tests.pipeline_defs.sql.test_soundness import NOW, SCHEMAS, SCOPES, UPSTREAMS, VARIABLES

if TYPE_CHECKING:
    import datetime as dt

ROOT = {"product": "string", "nb": "int", "day": "string"}
FILES = {
    "b.one": ("b.root", "SELECT product, nb FROM b.root WHERE day = pd"),
    "b.two": ("b.one", "SELECT product, nb + 1 AS more FROM b.one"),
    "b.three": ("b.two", "SELECT product FROM b.two"),
}


def load(cache: Cache, root: dict[str, str], **texts: str) -> dict[str, dict[str, str]]:
    """The schemas of a chain of files."""
    schemas: dict[str, dict[str, str]] = {"b.root": root}
    for name, (upstream, text) in FILES.items():
        text = texts.get(name[2:], text)  # noqa: PLW2901
        seen = {upstream: schemas[upstream]}

        def make(text: str = text, seen: dict[str, dict[str, str]] = seen) -> Entry:
            found = qualified(sqlglot.parse_one(text, dialect="spark"), seen, {"pd": "string"})
            return entry_of(found.outputs, [dependencies(found.tree, {name: {} for name in seen})])

        schemas[name] = cache.entry(name, key_of(text, seen), make).schema
    return schemas


def test_nothing_changed_makes_nothing_anew() -> None:
    cache = Cache()
    before = load(cache, ROOT)
    again = Cache.loads(cache.dumps())
    assert load(again, ROOT) == before
    assert (again.hits, again.misses) == (3, 0)


def test_a_change_ends_where_the_columns_stay_the_same() -> None:
    cache = Cache()
    load(cache, ROOT)
    cache.hits = cache.misses = 0
    load(cache, ROOT, one="SELECT product, nb FROM b.root WHERE day < pd")
    assert (cache.hits, cache.misses) == (2, 1)
    load(cache, {**ROOT, "added": "int"})
    assert (cache.hits, cache.misses) == (4, 2)
    load(cache, {**ROOT, "nb": "bigint"})
    assert (cache.hits, cache.misses) == (4, 5)


def test_a_damaged_or_foreign_cache_is_an_empty_one() -> None:
    for text in ("", "{", "[]", '{"version": "0", "entries": {}}', '{"version": 1}'):
        assert Cache.loads(text).entries == {}


def test_files_that_are_no_more_are_forgotten() -> None:
    cache = Cache()
    load(cache, ROOT)
    cache.keep_only(["b.one"])
    assert list(cache.entries) == ["b.one"]


def test_conditions_come_back_with_the_same_partitions() -> None:
    scopes = Bindings.of(VARIABLES, SCOPES)
    partitions = {name: each.types for name, each in UPSTREAMS.items()}
    for query in constructs()[::5]:
        found = qualified(sqlglot.parse_one(query, dialect="spark"), SCHEMAS, VARIABLES)
        made = dependencies(found.tree, partitions)
        cache = Cache()
        cache.entry("x", "k", lambda made=made, found=found: entry_of(found.outputs, [made]))  # type: ignore[misc]
        (back,) = Cache.loads(cache.dumps()).entries["x"][1].dependencies()
        assert pairs(back, scopes) == pairs(made, scopes), query


def pairs(found: object, scopes: Bindings) -> list[tuple[str, int]]:
    now: dt.datetime = NOW
    return [
        (each.scan.dataset, each.pairs)
        for _, part in readings(found, UPSTREAMS, scopes, now=now)  # type: ignore[arg-type]
        for each in part
    ]
