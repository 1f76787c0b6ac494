"""Toy figures, written into a folder: every test of the runner has one of its own."""

import pytest

CONFIG = """
[figure]
title = "A toy"
paper = "Fig. 0"
says = "Squares are squares."
version = 1
timed = false

[settings]
sizes = [1, 2, 3, 4]
log = ""
pause_s = 0.0

[quick]
sizes = [1, 2]
"""
RUN = """
import os, time
from pathlib import Path
from .helper import square

def cells(config):
    return [{"n": n, "log": config["log"], "pause_s": config["pause_s"]} for n in config["sizes"]]

def run_cell(settings):
    start = time.monotonic()
    if settings["log"]:
        with Path(settings["log"]).open("a") as file:
            file.write(f"{settings['n']} {os.getpid()} {start}\\n")
    time.sleep(settings["pause_s"])
    return [{"n": settings["n"], "square": square(settings["n"]), "tenth": settings["n"] / 10}]
"""
HELPER = """
def square(n):
    return n * n
"""
CLAIMS = """
from vfbandits.reproduce.claim import Claim, ValueTable

def claims(rows, config):
    right = all(row["square"] == row["n"] ** 2 for row in rows)
    return [
        Claim.judged("Squares are <squares>.", place="Fig. 0", measured=f"{len(rows)} rows",
                     criterion="all", holds=right),
        Claim.judged("Squares are odd.", place="Fig. 0", measured="some are even",
                     criterion="all odd", holds=all(row["square"] % 2 for row in rows)),
        Claim.unchecked("Squares are rare.", place="Fig. 0", criterion="few",
                        reason="nobody counted"),
    ]

def tables(rows, config):
    return [ValueTable("Squares", ("n", "n²"),
            tuple((str(row["n"]), str(row["square"])) for row in rows))]
"""
PLOT = """
from matplotlib.figure import Figure
from vfbandits.reproduce.drawing import Drawing

def draw(rows, config):
    canvas = Figure(figsize=(2, 2))
    canvas.subplots().plot([row["n"] for row in rows], [row["square"] for row in rows])
    return [Drawing("squares", "Squares & more", canvas)]
"""
FILES = {
    "config.toml": CONFIG,
    "run.py": RUN,
    "helper.py": HELPER,
    "claims.py": CLAIMS,
    "plot.py": PLOT,
}


@pytest.fixture
def toy(tmp_path):
    """Writes a toy figure and gives its folder; keywords are (old, new) for a file each."""

    def write(name="fig0_toy", **changes):
        folder = tmp_path / "figures" / name
        folder.mkdir(parents=True)
        for file, text in FILES.items():
            old, new = changes.get(file.split(".")[0], ("", ""))
            assert old in text
            (folder / file).write_text(text.replace(old, new) if old else text)
        return folder

    return write
