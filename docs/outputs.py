"""Run the commands whose output the README and the tutorials show, and write that output into the pages.

    python docs/outputs.py [PAGE ...] [--only WORDS]

A block of output stands below a line ``<!-- output: COMMAND -->``. Each command runs once, in a terminal of 100 columns
and with an empty dataset. The first eight rows of a table are kept, in the README five of the first table; date,
machine and commit are the last line. Run this on a quiet machine: its times are published.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from common import provenance  # noqa: E402 - beside the benchmarks

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md")))
_COLUMNS = 100
_ROWS = 8
_ROWS_OF_README = 5  # four operators, of which one takes two lines
_BLOCK = re.compile(r"(<!-- output: (.+) -->\n```\n).*?(```)", re.DOTALL)
_LINE_ABOVE, _WIPED = "\x1b[1A", "\x1b[2K"
_ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("pages", nargs="*", type=Path, default=PAGES)
    arguments.add_argument("--only", default="", help="run the commands that have these words in them")
    given = arguments.parse_args()
    measured_on = provenance()
    outputs: dict[str, str] = {}
    for page in given.pages:
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            command = block[2]
            if given.only not in command:
                continue
            if command not in outputs:
                print(command, flush=True)
                with tempfile.TemporaryDirectory() as folder:
                    outputs[command] = output_of(command, Path(folder))
            short = page.name == "README.md"
            shown = shortened(outputs[command], _ROWS_OF_README, tables=1) if short else shortened(outputs[command])
            text = text.replace(block[0], f"{block[1]}{shown}\n{measured_on}\n{block[3]}")
        page.write_text(text, encoding="utf-8")


def output_of(command: str, folder: Path) -> str:
    """What a terminal shows when the command has ended, without colours and progress.

    Raises:
        SystemExit: the command failed.
    """
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
        os.environ.update(TERM="xterm", NO_COLOR="1")
        os.environ.pop("COLUMNS", None)
        os.chdir(folder)
        words = shlex.split(command)
        os.execvp(words[0], words)
    written = b""
    while True:
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:  # how a terminal of Linux says that its last writer is gone
            break
        if not read:
            break
        written += read
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{command}: exit code {code}\n{written.decode()[-2000:]}")
    lines: list[str] = []
    for line in written.decode().replace("\r\n", "\n").split("\n"):
        if _LINE_ABOVE in line:  # the end of a line of progress, which is wiped out
            lines.pop()
        lines.append(_ESCAPES.sub("", line.rpartition(_WIPED)[2].rpartition("\r")[2]).rstrip())
    return "\n".join(lines)


def shortened(text: str, most: int = _ROWS, tables: int | None = None) -> str:
    """Return an output without the rows of tables after the first `most`, and without what follows so many tables."""
    kept: list[str] = []
    rows = 0
    for line in text.strip("\n").split("\n"):
        rows = rows + 1 if line.startswith("│") else 0
        if rows <= most:
            kept.append(line)
        elif rows == most + 1:
            kept.append("  ...")
        if line.startswith("└") and tables is not None and sum(one.startswith("└") for one in kept) == tables:
            kept.append("  ...")
            break
    return "\n".join(kept)


if __name__ == "__main__":
    main()
