"""Boards of one kind, on emulated ones: no board is answered with another's times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import free_port

from op_profiler.targets.machine import Place
from op_profiler.targets.remote.board import Board

HOST = "127.0.0.1"


def identity(lab: Any, address: str) -> str:
    from op_profiler.targets.target import resolve_target

    board = Board("pynq", resolve_target("pynq"), Place(host=HOST, port=lab.port, key="pynq"), address)
    try:
        return board.device.identity
    finally:
        board.close()


def test_a_board_is_told_by_its_serial_number_or_by_all_that_is_its_own(lab: Any) -> None:
    cpu = "Hardware : Xilinx Zynq\nSerial : {}\n"
    board = lab.board()

    def told(**files: str) -> str:
        board.stop()
        board.files = {name.replace("__", "/"): text for name, text in files.items()}
        board.start()
        lab.wait_until_offered(board.address)
        return identity(lab, board.address)

    first = told(proc__cpuinfo=cpu.format("00000000017b5"))
    assert first != told(proc__cpuinfo=cpu.format("00000000017b6"))
    port, board.port = board.port, free_port()
    assert first == told(proc__cpuinfo=cpu.format("00000000017b5")), "it has a serial number: its address may change"
    zeros = told(proc__cpuinfo=cpu.format("0000000000000000"))
    board.port = port
    assert zeros != told(proc__cpuinfo=cpu.format("0000000000000000")), "nothing but the address tells them apart"
    cards = {told(proc__cpuinfo=cpu.format("0"), sys__block__mmcblk0__device__cid=cid) for cid in ("1b53", "1b54")}
    assert len(cards) == 2, "the same address in two networks, and copies of one card"


def test_boards_without_anything_of_their_own_are_told_by_who_reaches_them(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = lab.board()
    board.stop()
    board.files = {"proc/cpuinfo": "Hardware : Xilinx Zynq\n"}
    board.start()
    lab.wait_until_offered(board.address)
    here = identity(lab, board.address)
    assert here == identity(lab, board.address)
    monkeypatch.setattr("op_profiler.targets.remote.probe.host_id", lambda: "another")
    assert here != identity(lab, board.address)


@pytest.mark.slow  # whom a board is taken for is asked above, and what twins of the host measure in test_identity.py
def test_another_board_at_the_same_address_is_measured(lab: Any, collect: Any, tmp_path: Path) -> None:
    board = lab.board()
    mlp = ("--modelsource", "local", "--modelname", "mlp", "--target", "pynq", "--threads", "1")
    where = ("--host", HOST, "--port", str(lab.port), "--summary-json", str(tmp_path / "summary.json"))

    def collected(machine_id: str) -> tuple[int, int]:
        board.stop()
        board.files = {"etc/machine-id": machine_id}
        board.start()
        lab.wait_until_offered(board.address)
        done = collect(*mlp, *where)
        assert done.returncode == 0, done.stderr + done.stdout
        (entry,) = json.loads((tmp_path / "summary.json").read_text())
        return entry["measured"], entry["reused"]

    assert collected("a" * 32) == (4, 0)
    assert collected("b" * 32) == (4, 0)
    assert collected("a" * 32) == (0, 4)
    board.stop()
    done = collect(*mlp, *where)
    assert done.returncode == 5 and "pynq" in done.stderr, done.stdout
