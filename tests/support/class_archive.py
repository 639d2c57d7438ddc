"""Spark's classes, read and verified once for all JVMs of the suite: `python -m tests.support.class_archive`.

A JVM with the archive is ready in half of the processor time: a server with its first table took 18 s, and takes 11 s.
One that does not fit, after another Java or PySpark was installed, is left aside by the JVM, which then reads the jars.
But of an environment that was copied to another folder it takes half of the classes from the old jars: Derby refuses
that, and Hive tries again for minutes. So the archive has a note of where its jars are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

# Half of the processor time of a JVM that lives for minutes went to compiling what then hardly ran. Without the second
# compiler it would have 48 MB for compiled code, which generated classes fill: a quarter of the time went to sweeping.
# And every start collected its garbage whole, several times, only to find out how much room the classes need. Later on
# a tenth of it went to garbage: of what each test makes too much was still in use when 400 MB were full, and was moved
# to where only whole collections find it. So half of the heap is for what is new, and the heap grows rather early.
JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m -XX:+UseSerialGC -Xms1g "
    "-XX:NewRatio=1 -XX:SurvivorRatio=4 -XX:MinHeapFreeRatio=70 -XX:MaxHeapFreeRatio=90"
)
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Beside an archive, the environment whose jars it was made from.
_PLACE = ".place"
# Writing the archive takes the JVM half a minute, and several on a busy machine.
END_SECONDS = 600


def jvm_options() -> str:
    """The options of the suite's JVMs, with the archive where there is one."""
    return f"{JVM_OPTIONS} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if is_usable(ARCHIVE) else JVM_OPTIONS


def is_usable(archive: Path, environment: str = sys.prefix) -> bool:
    """Whether there is an archive of the jars of this environment."""
    place = archive.with_suffix(_PLACE)
    is_written = archive.exists() and archive.stat().st_size > 0
    return is_written and place.exists() and place.read_text(encoding="utf-8") == environment


def make(archive: Path) -> None:
    """Let a server do a little of everything, and write the classes that it has loaded when it ends."""
    from psutil import Process

    from varve.services import spark_server
    from varve.services.jvm.java import java_home
    from varve.services.settings import Settings
    from varve.services.spark import open_session
    from varve.services.spark_server import SparkServer

    unfinished, place = archive.with_suffix(".unfinished"), archive.with_suffix(_PLACE)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    with tempfile.TemporaryDirectory(prefix="varve-") as home:
        settings = Settings(home=Path(home), spark_master=None, spark_remote=None)
        java = java_home(settings.home_dir) / "bin" / "java"
        if subprocess.run([java, "-Xshare:on", "-version"], check=False, capture_output=True).returncode:
            # A small Java, without an archive of its own classes, cannot write one: the JVMs read the jars.
            archive.touch()
            place.write_text(sys.prefix, encoding="utf-8")
            return
        server = SparkServer(settings)
        # An archive fits a class path that begins with its own: ours is behind Spark's, where it is there at all.
        with patch.object(spark_server, "add_our_classes"), patch.object(spark_server, "of_our_classes", dict):
            server.ensure_up()
        try:
            session = open_session(settings)
            session.sql("CREATE DATABASE x")
            rows = session.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING")
            rows.write.partitionBy("name").saveAsTable("x.y", format="parquet")
            session.sql("SELECT name, count(*), max(z.id) FROM x.y JOIN x.y z USING (name) GROUP BY name").collect()
            session.stop()
        finally:
            pid = server.pid()
            assert pid is not None
            process = Process(pid)
            # Not `server.stop()`, which would kill it while it writes.
            process.terminate()
            process.wait(END_SECONDS)
    unfinished.replace(archive)
    # Last, because it is what `make` asks for.
    place.write_text(sys.prefix, encoding="utf-8")


if __name__ == "__main__":
    make(ARCHIVE)
