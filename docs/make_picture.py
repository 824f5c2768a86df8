"""The example run -> docs/report.png, the first screen of its report; needs Chromium (CHROMIUM)."""

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, FloatRect, sync_playwright

from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.reports.formats.html import make_page
from dlperf_slurm.reports.report_files import make_report

DOCS = Path(__file__).parent
WIDTH = 1050
MARGIN = 20


def make_picture(browser: Browser) -> bytes:
    """Draw the page as a PNG file, down to the caption of the first table."""
    page = make_page(make_report(open_run(DOCS / "example"), {}))
    screen = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    screen.set_content(page)
    box = screen.locator(".caption").first.bounding_box()
    assert box is not None
    height = box["y"] + box["height"] + MARGIN
    clip = FloatRect(x=0, y=0, width=WIDTH, height=height)
    picture = Image.open(io.BytesIO(screen.screenshot(clip=clip, full_page=True)))
    file = io.BytesIO()
    palette = picture.convert("RGB").quantize(colors=256, method=Image.Quantize.MAXCOVERAGE)
    palette.save(file, "png", optimize=True)
    return file.getvalue()


def main() -> None:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    # the sandbox does not run as root, as in a container
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        (DOCS / "report.png").write_bytes(make_picture(browser))


if __name__ == "__main__":
    main()
