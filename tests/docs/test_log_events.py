"""The table of log events in docs/operations.md, against what the services log."""

import ast
import functools
import re
from pathlib import Path

from vfbandits.telemetry.log import WARNINGS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vfbandits"
LAYERS = ("http", "journal", "participant", "protocol", "serving", "telemetry", "transport")
LEVELS = ("info", "warning", "error")
ONCE = ("_tell", "_fail")  # a trainer logs the same obstacle once
EVENT = re.compile(r"[a-z]+(_[a-z]+)*")
ROW = re.compile(r"^\| `(?P<event>[a-z_]+)` \| (?P<level>[a-z, ]+) \|", re.MULTILINE)


def documented():
    """Level and text of each event in the table."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return {row["event"]: row["level"] for row in ROW.finditer(page)}


def texts_in(expression, function):
    """Constant texts that an expression can have: itself, or what its name was given."""
    if isinstance(expression, ast.Name):
        given = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(getattr(target, "id", "") == expression.id for target in node.targets)
        ]
        return [text for value in given for text in texts_in(value, function)]
    if isinstance(expression, ast.IfExp):
        return texts_in(expression.body, function) + texts_in(expression.orelse, function)
    return [expression.value] if isinstance(getattr(expression, "value", None), str) else []


def event_of(call):
    """The argument of a call that names an event, and the level that the call states."""
    function = call.func
    if isinstance(function, ast.Name) and function.id == "LogLine" and call.args:
        return call.args[0], ""
    if isinstance(function, ast.Name) and function.id == "log_line" and len(call.args) > 1:
        return call.args[1], ""
    if isinstance(function, ast.Attribute) and function.attr in ONCE and call.args:
        return call.args[0], "warning"
    if isinstance(function, ast.Attribute) and function.attr in LEVELS and call.args:
        logger = function.value
        name = getattr(logger, "attr", getattr(logger, "id", ""))
        if name.strip("_") == "log":
            return call.args[0], function.attr
    return None, ""


@functools.cache
def logged():
    """Levels of each event that the source can log."""
    found = {}
    for layer in LAYERS:
        for path in sorted((SOURCE / layer).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for event, level in events_in(function):
                        found.setdefault(event, set()).add(level)
    return found


def events_in(function):
    for call in ast.walk(function):
        if isinstance(call, ast.Call):
            expression, stated = event_of(call)
            texts = [] if expression is None else texts_in(expression, function)
            for text in texts:
                if EVENT.fullmatch(text):
                    yield text, stated or ("warning" if text in WARNINGS else "info")


def test_every_event_in_the_table_is_logged_somewhere():
    assert sorted(set(documented()) - set(logged())) == []


def test_every_event_that_is_logged_is_in_the_table():
    assert sorted(set(logged()) - set(documented())) == []


def test_the_table_states_the_level_of_each_event():
    stated = {event: set(level.split(", ")) for event, level in documented().items()}
    assert stated == logged()
