"""Debian's Chromium without a window, for tests of the page; a machine without one fails them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright


def chromium_path() -> str:
    found = shutil.which("chromium")
    if found is None:
        raise RuntimeError("wanted the program 'chromium' on the path, found none: install it")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=20_000)  # a busy machine is slow, and a right page does not wait
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True)
        try:
            yield browser
        finally:
            browser.close()
