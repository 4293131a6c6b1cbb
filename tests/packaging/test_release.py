"""A release: all files name one version, the changelog keeps its form, and the tag has the changelog's section."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import op_profiler

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
LONGEST_ENTRY = 160
RELEASE = re.compile(r"## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)")


def changelog() -> list[str]:
    """The lines of the changelog below its introduction."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("## ")) :]


def releases() -> list[tuple[str, str]]:
    """Version and date of each release, in the order of the file."""
    heads = [line for line in changelog() if line.startswith("## ") and line != "## [Unreleased]"]
    found = [RELEASE.fullmatch(head) for head in heads]
    assert all(found), heads
    return [(".".join(match.groups()[:3]), match[4]) for match in found if match]


def test_the_newest_version_is_that_of_the_package() -> None:
    assert releases()[0][0] == op_profiler.__version__


def test_releases_are_listed_newest_first() -> None:
    order = [(tuple(map(int, version.split("."))), date) for version, date in releases()]
    assert order == sorted(order, reverse=True) and len(dict(order)) == len(order)


def test_every_entry_is_one_line() -> None:
    kinds = {f"### {kind}" for kind in KINDS}
    lines = [line for line in changelog() if line and not line.startswith("## ") and line not in kinds]
    assert len(lines) > 300
    wrong = [line for line in lines if not re.fullmatch(r"- \S.*\.", line) or len(line) > LONGEST_ENTRY]
    assert wrong == []
    assert len(set(lines)) == len(lines), "an entry is there twice"


def test_a_version_lists_each_kind_of_change_once_and_not_empty() -> None:
    for section in re.split(r"^## ", "\n".join(changelog()), flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (\w+)$", section, re.MULTILINE)
        assert len(set(kinds)) == len(kinds), section.splitlines()[0]
        assert not re.search(r"^### .*\n\s*(### |\Z)", section, re.MULTILINE), section.splitlines()[0]


def test_the_citation_is_of_this_release() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["date-released"]) == releases()[0]
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"


def test_other_pages_name_this_version() -> None:
    version = op_profiler.__version__
    assert set(re.findall(r"op_profiler-([\d.]+)-py3", (ROOT / "docs" / "install.md").read_text())) == {version}
    assert f"| {version.rpartition('.')[0]}.x | yes |" in (ROOT / "SECURITY.md").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit that can be released as 1.2.3."""
    for folder in ("collector", "python/op_profiler"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "collector" / "release.sh", tmp_path / "collector")
    (tmp_path / "python" / "op_profiler" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    sections = ("## [1.2.3] - 2026-12-01\n\n### Added\n- New.", "## [1.2.0] - 2026-11-30\n\n### Fixed\n- Old.")
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join(("# Changelog", *sections)) + "\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "tag.gpgSign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-gpg-sign", "--message", "A change")


def release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    for name in ("user.name", "user.email"):
        git(folder, "config", name, "tests@example.org")
    return subprocess.run(
        [str(folder / "collector" / "release.sh"), *words], cwd=folder.parent, text=True, capture_output=True
    )


def test_the_tag_has_the_section_of_its_version(checkout: Path) -> None:
    printed = release(checkout, "--dry-run")
    assert printed.returncode == 0 and "v1.2.3" in printed.stdout and "- New." in printed.stdout
    assert git(checkout, "tag") == ""
    assert release(checkout).returncode == 0
    message = git(checkout, "tag", "--list", "--format=%(objecttype) %(contents)", "v1.2.3")
    assert message.strip() == "tag op_profiler 1.2.3\n\n### Added\n- New."
    again = release(checkout)
    assert again.returncode == 1 and "v1.2.3 exists" in again.stderr


def test_entries_that_are_not_released_are_refused(checkout: Path) -> None:
    path = checkout / "CHANGELOG.md"
    text = path.read_text()
    path.write_text(text.replace("## [1.2.3]", "## [Unreleased]\n\n### Fixed\n- Newer.\n\n## [1.2.3]"))
    commit(checkout)
    refused = release(checkout)
    assert refused.returncode == 1 and "entries under [Unreleased]" in refused.stderr
    assert "1.2.3" in refused.stderr and git(checkout, "tag") == ""
    path.write_text(text.replace("## [1.2.3]", "## [Unreleased]\n\n## [1.2.3]"))
    commit(checkout)
    assert release(checkout).returncode == 0 and git(checkout, "tag") == "v1.2.3\n"


def test_what_cannot_be_released_is_refused(checkout: Path) -> None:
    assert release(checkout, "--force").returncode == 2
    (checkout / "new.py").write_text("")
    dirty = release(checkout)
    assert dirty.returncode == 1 and "uncommitted" in dirty.stderr
    (checkout / "python" / "op_profiler" / "__init__.py").write_text('__version__ = "1.2.4"\n')
    commit(checkout)
    unlisted = release(checkout)
    assert unlisted.returncode == 1 and "no section '## [1.2.4] - DATE'" in unlisted.stderr
    assert git(checkout, "tag") == ""
