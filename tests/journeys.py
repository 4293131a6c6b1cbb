"""What three users see: their commands in tmux at 80 and 120 columns, their pages in Chromium at three widths.

    python -m tests.journeys FOLDER [JOURNEY ...]      # a quarter of an hour; measures, so nothing else should run

FOLDER receives a text per command and width, and a picture per page and width. Cut numbers, rows that cannot be told
apart and pages that leave the width unused are printed; the exit code is then 1. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.report.page.browser import DRAW_ALL

COLUMNS = (80, 120)
PIXELS = (400, 1400, 1920)
PATIENCE_SECONDS = 300
NET = '''"""A small network."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(nn.functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Net(32, 2), (torch.zeros(1, 3, 64, 64),)


candidates = [(Net(width, depth), (torch.zeros(1, 3, 64, 64),)) for width in (16, 32) for depth in (1, 2)]
'''
FRAME = """
from op_profiler import Dataset

with Dataset.open("sqlite:///runs.db") as dataset:
    rows = dataset.to_pandas()
heavy = rows[rows.model_name == "net:net"].sort_values("median_us", ascending=False)
print(heavy[["run_label", "anchor", "threads", "median_us"]].head(8).to_string(index=False))
"""


def described(width: int) -> str:
    """A line with the layers of a network of a width."""
    first = {"kind": "dense", "rows": 1, "in_features": 784, "out_features": width, "epilogue": "bias_relu"}
    second = {"kind": "dense", "rows": 1, "in_features": width, "out_features": 10}
    return json.dumps({"name": f"{width} wide", "layers": [first, second]})


FILES = {
    "net.py": NET,
    "frame.py": FRAME,
    "lines.txt": '{"model": "mlp", "label": "small"}\nrnn\n',
    "networks.txt": "\n".join(map(described, range(8, 808, 8))),
    "library.out": "{Regular,1,3,224,224,32,3,2,1} 1.9\n{Regular,1,32,112,112,64,3,1,1} 3.2\n",
}
"""The users' files, by name."""
JOURNEYS = {
    "compiler engineer": (
        "collect net:net --threads 1,2 --label before --db runs.db",
        "explain net:net --trials-from none --db runs.db",
        "report net:net --db runs.db --output report.html",
        "collect net:net --threads 1,2 --label after --schedules none --db runs.db",
        "compare before after --db runs.db --report comparison.html",
        "compare before after --db runs.db --rerun --seconds 20",
        "collect net:net --threads 1 --iftune true --trials 10 --label tuned --db runs.db",
        "report $(op-profiler dataset --db runs.db --json | python -c 'import json, sys;"
        ' print(*[one["key"] for one in json.load(sys.stdin)["models"]][:2])\') --db runs.db --output two_runs.html',
        "dataset --db runs.db",
        "python frame.py",
    ),
    "architecture search": (
        "predict --device list",
        "predict 'net:candidates[*]' --below 50ms",
        "predict net:net --threads 1,2",
        "predict @networks.txt --below 5us",
        "predict @lines.txt --device znver4,emeraldrapids",
        "import --format tinynas library.out --device V100 --db foreign.db",
        "calibrate --budget 30s --threads 1 --db calibrated.db",
        "predict net:net",
    ),
    "systems researcher": (
        "sample --kinds list",
        "sample --kinds dense,softmax --count 12 --rounds 5 --threads 1,2 --db sampled.db",
        "analyze --include-noisy --db sampled.db --report analysis.html",
        "corun mlp rnn --policy greedy --report corun.html",
        "export times.csv --db sampled.db",
    ),
}
CUT_NUMBER = re.compile(r"\d…")
USED_WIDTH = """() => {
    const shown = [...document.querySelectorAll("main > section:not([hidden]) *")].filter((one) => one.offsetWidth);
    const right = Math.max(...shown.map((one) => one.getBoundingClientRect().right));
    return [right / innerWidth, document.documentElement.scrollWidth / innerWidth];
}"""


def main() -> int:
    """Run the journeys, and return the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("journeys", nargs="*", default=list(JOURNEYS), help=", ".join(JOURNEYS))
    given = arguments.parse_args()
    folder: Path = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    os.environ["XDG_DATA_HOME"] = str(folder / "data")  # where `calibrate` notes its dataset
    wrong = []
    with terminal(folder) as socket:
        for journey in given.journeys:
            for number, command in enumerate(JOURNEYS[journey], start=1):
                line = command if command.startswith("python") else f"op-profiler {command}"
                for columns in COLUMNS if socket is not None else ():
                    text = typed(str(socket), line, columns)
                    name = f"{journey.replace(' ', '_')}-{number}-{command.split()[0]}-{columns}.txt"
                    (folder / name).write_text(text)
                    wrong += [f"{name}: {what}" for what in faults(text)]
    wrong += pictured(folder)
    print("\n".join(wrong) or "nothing wrong was found")
    return 1 if wrong else 0


@contextlib.contextmanager
def terminal(folder: Path) -> Iterator[Path | None]:
    """The socket of a tmux server whose windows open in a folder; None where tmux is not installed."""
    if shutil.which("tmux") is None:
        print("tmux is not installed: no commands are run", file=sys.stderr)
        yield None
        return
    socket = folder / "tmux"
    tmux(socket, "-f", "/dev/null", "new-session", "-d", "-s", "server", "-c", str(folder))
    tmux(socket, "set-option", "-g", "history-limit", "20000")
    try:
        yield socket
    finally:
        tmux(socket, "kill-server")


def tmux(socket: Path | str, *arguments: str, seconds: float = 20.0) -> str:
    """Run a command of tmux and return what it prints."""
    command = ["tmux", "-S", str(socket), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds).stdout


def typed(socket: str, command: str, columns: int) -> str:
    """What a terminal of so many columns shows once a command is done, its exit code last; or without it, when
    `PATIENCE_SECONDS` are over."""
    shell = f"{command}; echo exit code $?; tmux -S {socket} wait-for -S typed; cat"
    window = ("-d", "-x", str(columns), "-y", "50", "-s", "typed", "-c", str(Path(socket).parent))
    tmux(socket, "new-session", *window, shell)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            tmux(socket, "wait-for", "typed", seconds=PATIENCE_SECONDS)
        return tmux(socket, "capture-pane", "-p", "-S", "-", "-t", "typed").rstrip() + "\n"
    finally:
        tmux(socket, "kill-session", "-t", "typed")


def faults(text: str) -> list[str]:
    """What is wrong with a capture: a failed command, cut numbers, rows of a table that are alike."""
    *_, last = text.splitlines()
    found = [] if last == "exit code 0" else [f"it ended in: {last}"]
    found += [f"cut number: {line.strip()}" for line in text.splitlines() if CUT_NUMBER.search(line)]
    rows = collections.Counter(line for line in text.splitlines() if re.match(r"│ *\S[^│]*│.*\d.*│$", line))
    return found + [f"{count} rows are alike: {row}" for row, count in rows.items() if count > 1]


def pictured(folder: Path) -> list[str]:
    """Take pictures of the pages in a folder; return what is wrong with them."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("there is no Chromium or no playwright: no pictures are taken", file=sys.stderr)
        return []
    wrong = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for path in sorted(folder.glob("*.html")):
            for width in PIXELS:
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.goto(path.as_uri())
                page.wait_for_selector("main > section:not([hidden]) [data-section] > *")
                page.evaluate(DRAW_ALL)
                page.screenshot(path=folder / f"{path.stem}-{width}.png", full_page=True)
                used, needed = page.evaluate(USED_WIDTH)
                if used < 0.9:
                    wrong.append(f"{path.stem} at {width} pixels: content stops at {used:.0%} of the width")
                if needed > 1.0:
                    wrong.append(f"{path.stem} at {width} pixels: it has to be scrolled aside")
                page.close()
        browser.close()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
