"""From where Varve is installed again: what came from a file or a repository is never asked of an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.project import PROJECT
from varve.services.distribution import Source, installed

WHEEL = {"url": "file:///data/my%20wheels/varve-0.2.0-py3-none-any.whl", "archive_info": {}}
CHECKOUT = {"url": "file:///home/ann/varve", "dir_info": {}}
REPOSITORY = {"url": "https://git.example/varve", "vcs_info": {"vcs": "git", "commit_id": "4f2a"}}
EDITABLE = {"url": "file:///home/ann/my%20varve", "dir_info": {"editable": True}}


@pytest.mark.parametrize(
    ("record", "requirement", "command"),
    [
        (
            WHEEL, "varve[local] @ file:///data/my%20wheels/varve-0.2.0-py3-none-any.whl",
            "pip install 'varve[local] @ file:///data/my%20wheels/varve-0.2.0-py3-none-any.whl'",
        ),
        (CHECKOUT, "varve[local] @ file:///home/ann/varve", "pip install 'varve[local] @ file:///home/ann/varve'"),
        (
            REPOSITORY, "varve[local] @ git+https://git.example/varve@4f2a",
            "pip install 'varve[local] @ git+https://git.example/varve@4f2a'",
        ),
        (
            REPOSITORY | {"subdirectory": "python"},
            "varve[local] @ git+https://git.example/varve@4f2a#subdirectory=python",
            "pip install 'varve[local] @ git+https://git.example/varve@4f2a#subdirectory=python'",
        ),
        (
            EDITABLE, "varve[local] @ file:///home/ann/my%20varve",
            "pip install --editable '/home/ann/my varve[local]'",
        ),
        (None, "varve[local]>=0.2.0", "pip install 'varve[local]'"),
    ],
)  # fmt: skip
def test_the_same_package_is_named_wherever_it_came_from(
    record: dict[str, Any] | None, requirement: str, command: str
) -> None:
    source = Source.of(json.loads(json.dumps(record)), "0.2.0")
    assert source.requirement("local") == requirement
    assert Requirement(source.requirement("local")).extras == {"local"}
    assert Requirement(source.requirement()).name == "varve"
    assert source.install_command("local") == command


def test_the_suite_runs_the_checkout_in_place() -> None:
    assert Path(installed().editable) == PROJECT.root
