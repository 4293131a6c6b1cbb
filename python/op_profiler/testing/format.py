"""The test suite of the contract `Format`, which reads and writes files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset.flat import flat_rows
from op_profiler.dataset.formats.format import Format
from op_profiler.dataset.store import Dataset
from op_profiler.errors import OpProfilerError


class FormatSuite:
    """Tests that rows survive an import and an export, and that foreign files are rejected or counted.

    Fixtures:
        format: an `op_profiler.dataset.formats.format.Format`.
        example: content of a file in the format, with at least one valid row.
    """

    @pytest.fixture
    def format(self) -> Format:
        """The `Format` under test."""
        raise NotImplementedError

    @pytest.fixture
    def example(self) -> bytes:
        """The content of a small file of the format."""
        raise NotImplementedError

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Iterator[Dataset]:
        """An empty dataset in SQLite."""
        with Dataset.open(f"sqlite:///{tmp_path / 'suite.db'}") as opened:
            yield opened

    @pytest.fixture
    def file(self, tmp_path: Path, example: bytes) -> Path:
        """A file with the content `example`."""
        path = tmp_path / "example"
        path.write_bytes(example)
        return path

    @pytest.fixture(autouse=True)
    def reads(self, format: Format) -> None:
        """Skip the test if files of the format can only be written, not read."""
        if not format.reads:
            pytest.skip("files of it are only written")

    def test_rows_are_stored_once(self, format: Format, dataset: Dataset, file: Path) -> None:
        """Check that a second import of one file changes no row."""
        done = format.read_into(dataset, file)
        before = _stored(dataset)
        assert done.rows == len(before) > 0
        assert format.read_into(dataset, file).rows in (0, done.rows)
        assert _stored(dataset) == before

    def test_every_row_says_a_time_or_why_there_is_none(self, format: Format, dataset: Dataset, file: Path) -> None:
        """Check that each row has either a positive `median_us` or an `error`."""
        format.read_into(dataset, file)
        for row in flat_rows(dataset):
            assert (row["median_us"] is None) == (row["error"] is not None)
            assert row["median_us"] is None or row["median_us"] > 0

    def test_what_was_read_is_written_again(self, format: Format, dataset: Dataset, file: Path, tmp_path: Path) -> None:
        """Import, export and import again: the rows that were written come back, and every row is counted."""
        done = format.read_into(dataset, file)
        written = format.write_from(dataset, tmp_path / "out")
        assert written.rows + sum(written.left_out.values()) + written.slower == done.rows
        with Dataset.open(f"sqlite:///{tmp_path / 'again.db'}") as again:
            assert format.read_into(again, tmp_path / "out").rows == written.rows
            operators = [{row["operator_key"] for row in flat_rows(one)} for one in (again, dataset)]
            assert operators[0] <= operators[1]

    def test_the_device_and_the_precision_are_what_the_caller_says(
        self, format: Format, dataset: Dataset, file: Path
    ) -> None:
        """Check the columns `processor` and, where the format takes it, `precision`."""
        if not format.takes_device:
            pytest.skip("every row says where it was measured")
        format.read_into(dataset, file, device="a device", precision="float16")
        rows = list(flat_rows(dataset))
        assert {row["processor"] for row in rows} == {"a device"}
        if format.takes_precision:
            assert {row["precision"] for row in rows} == {"float16"}

    @pytest.mark.parametrize("content", [b"", b"\x00\xff\x80", b"nonsense\n\n{"], ids=["empty", "no text", "nonsense"])
    def test_a_file_of_another_kind_stores_nothing(
        self, format: Format, dataset: Dataset, tmp_path: Path, content: bytes
    ) -> None:
        """Check that foreign content is an error with the file's name, or counted as unreadable."""
        (tmp_path / "other").write_bytes(content)
        try:
            done = format.read_into(dataset, tmp_path / "other")
        except OpProfilerError as error:
            assert "other" in str(error)
        else:
            assert done.rows == 0 and (done.unreadable > 0 or not content)
        assert dataset.counts()["measurements"] == 0

    def test_a_file_that_is_not_there_is_named(self, format: Format, dataset: Dataset, tmp_path: Path) -> None:
        """Check that the error for a missing file names the file."""
        with pytest.raises(OpProfilerError, match="missing"):
            format.read_into(dataset, tmp_path / "missing")

    def test_a_condition_chooses_rows(self, format: Format, dataset: Dataset, file: Path, tmp_path: Path) -> None:
        """Check that a condition that no row fulfils gives a file without rows."""
        format.read_into(dataset, file)
        assert format.write_from(dataset, tmp_path / "none", where="median_us < 0").rows == 0
        assert (tmp_path / "none").is_file()


def _stored(dataset: Dataset) -> list[dict[str, Any]]:
    """Return all rows, without their time of storage."""
    rows = [{k: v for k, v in row.items() if k != "measured_at"} for row in flat_rows(dataset)]
    return sorted(rows, key=lambda row: str(row["measurement_key"]))
