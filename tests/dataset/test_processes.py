"""Several processes at once, and processes that are killed: what was reported stored is stored."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from typing import Any

from op_profiler.dataset import Dataset

Start = Callable[..., "subprocess.Popen[str]"]

WRITERS, ROWS, KILLS = 3, 30, 3

WRITE_MANY = """
url, writer = sys.argv[1], int(sys.argv[2])
with Dataset.open(url) as dataset:
    example.add_model(dataset)
    for streams in range(1, int(sys.argv[3]) + 1):
        settings = example.changed(streams=streams, threads=writer + 1)
        with dataset.transaction():
            dataset.record_model_timing("m", settings, example.device, example.timing())
            dataset.record(example.row(settings=settings))
"""

WRITE_UNTIL_KILLED = """
with Dataset.open(sys.argv[1]) as dataset:
    example.add_model(dataset)
    for streams in range(int(sys.argv[2]), 10**6):
        settings = example.changed(streams=streams)
        with dataset.transaction():
            dataset.record(example.row(settings=settings, measurement=example.measurement(200)))
            dataset.record_model_timing("m", settings, example.device, example.timing())
        print(streams, flush=True)
"""


def test_writers_at_the_same_time_lose_nothing(url: str, start: Start) -> None:
    """They start on a database that does not exist, so they also race to make it."""
    writers = [start(WRITE_MANY, url, str(number), str(ROWS)) for number in range(WRITERS)]
    for writer in writers:
        _, errors = writer.communicate(timeout=900)
        assert writer.returncode == 0, errors
    with Dataset.open(url, read_only=True) as dataset:
        counts = dataset.counts()
        assert (counts["measurements"], counts["model_timings"]) == (WRITERS * ROWS, WRITERS * ROWS)
        assert (counts["models"], counts["operators"], counts["devices"], counts["schedules"]) == (1, 2, 1, 1)


def test_a_killed_writer_loses_nothing_that_it_reported(url: str, start: Start, example: Any) -> None:
    reported: list[int] = []
    rng = random.Random(0)
    for _ in range(KILLS):
        writer = start(WRITE_UNTIL_KILLED, url, str(max(reported, default=0) + 1))
        assert writer.stdout is not None
        for _ in range(rng.randint(1, 40)):
            reported.append(int(writer.stdout.readline()))
        writer.kill()
        reported += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        with Dataset.open(url) as dataset:
            counts = dataset.counts()
            assert counts["measurements"] == counts["model_timings"]
            assert counts["measurements"] - len(reported) in (0, 1)  # the last may be stored and not yet reported
            what = {"schedule": example.schedule, "device_key": example.device.key, "model_key": "m"}
            for streams in reported:
                settings = example.changed(streams=streams)
                found = dataset.find_measurement(example.operator().key, settings=settings, **what)
                assert found is not None
                assert found.measurement == example.measurement(200)
