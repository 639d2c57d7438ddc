"""Makes `varve.jar` of its Java sources, the same bytes each time: `python -m tests.support.jar` (`make jar`).

It needs a JDK. Everybody else has the jar, which notes in its manifest what it was made of.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from varve.services.jvm.class_path import JAR

SOURCE = JAR.parent / "source"
# The oldest Java that Spark runs on.
RELEASE = 17
MANIFEST = "META-INF/MANIFEST.MF"


def manifest() -> str:
    """What the jar says of itself: each source file and the SHA-256 of its text."""
    sources = sorted(SOURCE.rglob("*.java"))
    lines = [
        f"Name: {path.relative_to(SOURCE).as_posix()}\r\n"
        f"SHA-256: {hashlib.sha256(path.read_bytes()).hexdigest()}\r\n\r\n"
        for path in sources
    ]
    return "Manifest-Version: 1.0\r\n\r\n" + "".join(lines)


def make(jar: Path) -> None:
    """Compile the sources against the jars of the installed PySpark, and pack the classes."""
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(path) for path in sorted(SOURCE.rglob("*.java"))]
        options = ["--release", str(RELEASE), "-Xlint:all,-path,-processing", "-Werror", "-g:none", "-cp", str(spark)]
        subprocess.run(["javac", *options, "-d", folder, *sources], check=True)
        # Not compressed: another zlib would write other bytes.
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST), manifest())
            for path in sorted(Path(folder).rglob("*.class")):
                archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())


if __name__ == "__main__":
    make(JAR)
