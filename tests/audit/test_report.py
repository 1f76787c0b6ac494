"""A whole audit: its plan, its page and its document."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from audit_tables import flags_and_counts, names, standard

from vfbandits.audit import AuditTable, Level, Result, Severity, plan
from vfbandits.audit.page import page_text
from vfbandits.audit.report import Report, as_document, describe_not_run
from vfbandits.audit.result import Curve


def result(**more):
    known = {
        "attack": "ica",
        "title": "A <title>",
        "level": Level.MASK,
        "needs": "rows & luck",
        "errors": {"a<b": 0.1, "c": 0.95},
    }
    return Result(**{**known, **more})


def report(*results, **more):
    known = {
        "source": "bank.csv",
        "rows": 100,
        "columns": ("a<b", "c"),
        "notes": ("one note",),
        "seed": 0,
    }
    return Report(**{**known, **more}, results=results)


def page(*results, **more):
    return page_text(report(*results, **more), date="today", versions="1 & 2")


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"errors": {"a": 0.3}}, Severity.RED),
        ({"errors": {"a": 1.0}, "exact": ("a",)}, Severity.RED),
        ({"errors": {"a": 0.31}}, Severity.AMBER),
        ({"errors": {"a": 1.0}, "discloses": True}, Severity.AMBER),
        ({"errors": {"a": 0.91}}, Severity.TRIED),
        ({"errors": {}}, Severity.TRIED),
    ],
)
def test_severity_follows_the_worst_column(more, severity):
    assert result(**more).severity is severity


def test_every_finding_is_on_the_page_with_what_it_needs_and_what_would_help():
    text = page(
        result(facts=("it fell",), advice="Send less.", certificate="a proof"),
        result(attack="other", title="Another", errors={"c": 1.2}, needs="a miracle"),
    )
    for words in ("A &lt;title&gt;", "rows &amp; luck", "It fell.", "Send less.", "a proof"):
        assert words in text
    assert '<li class="fail">1 red</li>' in text
    assert "Tried, and nothing recovered" in text
    assert "Another, level mask: least error 1.20. It needs a miracle." in text
    assert "a&lt;b" in text
    assert "One note." in text


def test_no_page_says_safe_but_to_deny_it():
    text = page(result(errors={"c": 1.2}))
    assert re.findall(r"[^.]*\bsafe\b", text) == [" None of them says that the table is safe"]


def test_curves_are_inside_for_light_and_dark_and_nothing_is_fetched():
    curve = Curve("insiders", "error", (1.0, 2.0), {"a line": (0.9, 0.1)})
    text = page(result(curve=curve))
    assert text.count("data:image/png;base64,") == 2
    assert 'media="(prefers-color-scheme: dark)"' in text
    assert not re.search(r"https?:|url\(|@import|<script", re.sub(r'base64,[^"]+', "", text))
    assert text == page(result(curve=curve))  # equal bytes


def test_what_was_not_run_is_said():
    assert "Not run: sum: insiders; sum: moments." in page(
        result(), not_run=("sum: insiders", "sum: moments")
    )
    assert "stopped" not in page(result())


def test_columns_are_ranked_by_attacks_that_say_something_about_them():
    found = report(
        result(errors={"a<b": 0.4, "c": 0.2}),
        result(errors={"a<b": 0.0, "c": 0.0}, is_universal=True),
    ).least_errors()
    assert [(column, error) for column, (error, _) in found.items()] == [("c", 0.2), ("a<b", 0.4)]


def test_the_document_is_plain_json():
    curve = Curve("x", "y", (1.0,), {"a": (0.5,)})
    document = json.loads(json.dumps(as_document(report(result(curve=curve)))))
    (finding,) = document["findings"]
    assert (finding["severity"], finding["errors"]["c"]) == ("red", 0.95)
    assert finding["curve"]["lines"] == {"a": [0.5]}


@pytest.fixture(scope="module")
def table():
    values = standard(flags_and_counts(np.random.default_rng(0), 600, 7))
    return AuditTable(values, names(7))


def test_a_plan_runs_every_attack_at_every_level(table):
    steps = plan(table, levels=list(Level), seed=0)
    wanted = {"mask": 7, "sum": 8, "statistics": 3, "arm": 3}
    assert Counter(str(step.level) for step in steps) == wanted
    assert describe_not_run(steps[-1:]) == ("arm: repeated widths",)


def test_a_step_gives_the_same_result_alone_as_after_others(table):
    levels = [Level.MASK, Level.SUM]
    first = [step.run() for step in plan(table, levels=levels, seed=1, n_others=3)]
    for place in (1, 4, 9, 13):
        assert plan(table, levels=levels, seed=1, n_others=3)[place].run() == first[place]
    assert all(set(one.errors) == set(table.columns) for one in first)
    assert {one.severity for one in first} <= set(Severity)


def test_a_notebook_shows_a_line_for_each_attack_the_worst_first():
    shown = report(result(errors={"c": 0.95}), result(title="Worst"))._repr_html_()
    assert shown.index("Worst") < shown.index("A &lt;title&gt;")
    assert "<td>red</td>" in shown
