"""Take the pictures of the README and of the tutorials: pages of real runs, in headless Chromium, on a quiet machine.

    op-profiler collect squeezenet1_1 --report page.html; python docs/screenshot.py report page.html
    op-profiler explain squeezenet1_1; op-profiler report squeezenet1_1; python docs/screenshot.py explain report.html
    op-profiler compare before after --rerun --report page.html; python docs/screenshot.py compare page.html
    op-profiler corun inception_v3 --report page.html; python docs/screenshot.py corun page.html

It writes docs/images/NAME.png, and needs playwright and Chromium, as the tests do.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
MOST_BYTES = 200_000
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
_SIZE = {"width": 1280, "height": 900}
PICTURES = {
    "report": ("overview", "operators", "treemap"),
    "explain": ("explain",),
    "compare": ("comparison",),
    "corun": ("corun",),
}
"""The sections of the page that are shown, by picture."""
_MOST_PX = 1100
_ROWS_PX, _AREAS_PX = 300, 360
_LAID_OUT = """async ([shown, rows, areas]) => {
    document.querySelectorAll("main > section").forEach((one) => { if (!shown.includes(one.id)) one.remove(); });
    document.querySelectorAll("nav a").forEach((one) => { if (!shown.includes(one.dataset.of)) one.remove(); });
    document.querySelectorAll("details").forEach((one) => one.remove());
    document.querySelectorAll("main > section").forEach((one) => { one.style.padding = "0.8rem 0"; });
    Tabulator.findTable("#operators .tabulator")[0]?.setHeight(rows);
    document.querySelector("#treemap .chart")?.style.setProperty("height", `${areas}px`);
    (await import("#chart")).resize();
    await new Promise((done) => setTimeout(done, 500));
}"""


_PIXELS = """async (png) => {
    const image = new Image();
    image.src = `data:image/png;base64,${png}`;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const reader = new FileReader();
    reader.readAsDataURL(new Blob([canvas.getImageData(0, 0, image.width, image.height).data]));
    await new Promise((done) => { reader.onload = done; });
    return [image.width, reader.result.split(",")[1]];
}"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("picture", choices=PICTURES)
    arguments.add_argument("page", type=Path, help="a page that a command wrote")
    given = arguments.parse_args()
    take(given.page, IMAGES / f"{given.picture}.png", PICTURES[given.picture])


def take(page_file: Path, picture: Path, sections: tuple[str, ...]) -> None:
    """Write the picture of a page: its head and some of its sections, at most `_MOST_PX` high.

    Raises:
        ValueError: the picture has more than `MOST_BYTES`.
    """
    with sync_playwright() as driver:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=program, args=_ARGUMENTS)
        page = browser.new_context(viewport=_SIZE, offline=True, color_scheme="light").new_page()
        page.goto(page_file.resolve().as_uri())
        for section in sections:
            page.locator(f"#{section}").scroll_into_view_if_needed()
            page.wait_for_selector(f"#{section} [data-section] > *")
        page.evaluate(_LAID_OUT, [sections, _ROWS_PX, _AREAS_PX])
        page.evaluate("scrollTo(0, 0)")
        end = page.locator(f"#{sections[-1]}").bounding_box()
        assert end is not None
        clip = {"x": 0, "y": 0, "width": _SIZE["width"], "height": min(end["y"] + end["height"], _MOST_PX)}
        png = page.screenshot(full_page=True, clip=clip)
        width, pixels = page.evaluate(_PIXELS, base64.b64encode(png).decode())
        browser.close()
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(png_of(np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(-1, width, 4)[..., :3]))
    if picture.stat().st_size > MOST_BYTES:
        raise ValueError(f"{picture} has {picture.stat().st_size:,} bytes; {MOST_BYTES:,} are the most")


def png_of(pixels: np.ndarray) -> bytes:
    """A PNG of the 256 most frequent colours, a fifth of the size that Chromium's has; others become the nearest.

    Args:
        pixels: red, green and blue, shape (height, width, 3), uint8.
    """
    height, width, _ = pixels.shape
    colours, place, count = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = colours[np.argsort(-count)[:256]]
    apart = np.abs(colours[:, None].astype(np.int16) - palette[None]).sum(axis=2)
    indices = apart.argmin(axis=1).astype(np.uint8)[place.reshape(height, width)]
    rows = np.hstack([np.zeros((height, 1), np.uint8), indices])  # a row begins with its filter, which is none
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


if __name__ == "__main__":
    main()
