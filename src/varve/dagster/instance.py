"""Dagster's instance: where its home is, and opening it as its dagster.yaml says.

Not here: the storage and the launcher that a dagster.yaml names (internal).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from varve.model.errors import ServiceUnavailable
from varve.project import NoProject, Project
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    import dagster as dg

    from varve.services.settings import Settings

# The module that a dagster.yaml names for storage on the server of the settings.
_OWN_STORAGE = "varve.dagster.internal"


def open_instance(settings: Settings, *, starting: bool = True) -> dg.DagsterInstance:
    """Return Dagster's instance as dagster.yaml describes it; sets DAGSTER_HOME in the environment.

    Where not `starting`, raises ServiceUnavailable instead of starting the embedded PostgreSQL for its storage.
    """
    import dagster as dg

    if not starting and (server := embedded_storage(settings)) is not None and not server.is_up():
        raise ServiceUnavailable(
            f"the embedded PostgreSQL of {server.home}, which has Dagster's storage, is down. Start it: varve up. Or "
            "name your own server: VARVE_DAGSTER_POSTGRES_URL."
        )
    os.environ["DAGSTER_HOME"] = str(dagster_home(settings))
    # A range run records an event for each partition. They are written in batches: written one by one, each event
    # would cost a connection and a commit.
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "100")
    return dg.DagsterInstance.get()


def sensor_daemon_seen(instance: dg.DagsterInstance) -> float:
    """Return when Dagster's sensor daemon last gave a sign of life, in seconds since 1970; 0.0: it never did."""
    heartbeat = instance.get_daemon_heartbeats().get("SENSOR")
    return 0.0 if heartbeat is None else heartbeat.timestamp


def forget_materialisations(settings: Settings, name: str) -> None:
    """Let Dagster show nothing of a dataset as materialised, should it be declared again; its runs stay.

    Where there is no instance of Dagster's, there is nothing to forget.
    """
    import dagster as dg

    with contextlib.suppress(NoProject), open_instance(settings) as instance:
        key = dg.AssetKey(name.split("."))
        if instance.has_asset_key(key):
            instance.wipe_assets([key])


def embedded_storage(settings: Settings) -> PostgresServer | None:
    """Return the embedded server that has the storage of Dagster's instance; None where that is elsewhere."""
    file = dagster_home(settings) / "dagster.yaml"
    instance_config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
    storage = ((instance_config or {}).get("storage") or {}).get("custom") or {}
    if storage.get("module") != _OWN_STORAGE:
        return None
    # As the storage itself finds them (internal).
    its_settings = Project.find((storage.get("config") or {}).get("project") or None).settings
    return None if its_settings.dagster_postgres_url is not None else PostgresServer(its_settings.home_dir)


def dagster_home(settings: Settings) -> Path:
    """Return Dagster's home: DAGSTER_HOME where it is set, else a folder in Varve's home with a copy of dagster.yaml.

    The copy names the project, as it lies outside of the project's folder. Raises NoProject without a dagster.yaml, and
    where DAGSTER_HOME names no folder.
    """
    home, named = settings.home_dir / "dagster", os.environ.get("DAGSTER_HOME")
    if named and (Path(named).resolve() != home.resolve() or (home / "dagster.yaml").is_file()):
        if not Path(named).is_dir():
            raise NoProject(
                f"DAGSTER_HOME is {named}, and there is no such folder. Make it and put dagster.yaml there, or take "
                f"DAGSTER_HOME out of the environment: then it is {home}."
            )
        return Path(named)
    home.mkdir(parents=True, exist_ok=True)
    own_file = settings.project / "dagster.yaml"
    if not own_file.is_file():
        raise NoProject(
            f"there is no {own_file}, which says where Dagster keeps its runs. `varve init` writes one; or set "
            "DAGSTER_HOME to a folder that has one."
        )
    instance_config = yaml.safe_load(own_file.read_text(encoding="utf-8"))
    storage = instance_config.get("storage", {}).get("custom", {})
    if storage.get("module") == _OWN_STORAGE:
        storage["config"] = {"project": str(settings.project), **(storage.get("config") or {})}
    # The password of a storage of others may stand in it: whoever cannot read the file cannot read the copy.
    mode = stat.S_IMODE(own_file.stat().st_mode) & 0o666 | stat.S_IRUSR
    _write_whole(home / "dagster.yaml", yaml.safe_dump(instance_config), mode)
    return home


def _write_whole(file: Path, text: str, mode: int) -> None:
    """Write a file that says something else: whole or not at all, as Dagster takes an empty one for its defaults."""
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        if stat.S_IMODE(file.stat().st_mode) != mode:
            file.chmod(mode)
        return
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.touch(mode=0o600)
        beside.write_text(text, encoding="utf-8")
        beside.chmod(mode)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
