"""What people install: the source archive, and the wheel built from it, hold the package whole and nothing beside it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "tossup").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


def build(source: Path, target: str, into: Path) -> Path:
    """Builds as pip does, with hatchling, which is here already; pip would fetch it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True, timeout=120)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive's folder."""
    archive = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    place = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    return place / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that is built from the source archive, as package indexes and `pip install` of an archive build it."""
    return zipfile.ZipFile(build(unpacked, "wheel", tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_source_archive_holds_the_package_and_its_docs(unpacked: Path) -> None:
    """The four links at the top lead into the package: an archiver that follows them packs a part under the wrong name."""
    assert {path.name for path in unpacked.iterdir()} == {
        *("tossup", "docs", "examples", "pyproject.toml"),
        *("README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore"),
    }
    assert {str(path.relative_to(unpacked)) for path in (unpacked / "tossup").rglob("*") if path.is_file()} == PACKAGE


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {name for name in names if ".dist-info/" not in name} == PACKAGE
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    "part", ["curriculum/report/assets/report.html", "engine/arithmetic/checkpoint/model.safetensors"]
)
def test_data_goes_along_as_it_is(wheel: zipfile.ZipFile, part: str) -> None:
    assert wheel.read(f"tossup/{part}") == (ROOT / "tossup" / part).read_bytes()


def test_the_metadata_says_what_it_runs_on(metadata: Message) -> None:
    assert metadata["Name"] == "tossup"
    assert metadata["License-Expression"] == "Apache-2.0"
    classifiers = metadata.get_all("Classifier") or []
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers


def test_torch_comes_only_with_an_extra(metadata: Message) -> None:
    heavy = ("torch", "transformers", "datasets", "vllm", "ray", "peft")
    always = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert always
    assert not [line for line in always if line.startswith(heavy)]
