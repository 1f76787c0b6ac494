"""Dashboard, alert rules and docs/monitoring.md, against the metrics that there are."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from fed_metrics import families, fed_metrics, helper_metrics, passive_metrics

from vfbandits.telemetry.tracer import Attributes

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
SCRAPE = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
FAMILIES = {
    **families(fed_metrics()),
    **families(passive_metrics()),
    **families(helper_metrics()),
}
OURS = {name: family for name, family in FAMILIES.items() if name.startswith("vfb_")}
SERIES = {sample.name for family in FAMILIES.values() for sample in family.samples} | {"up"}

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ASKED = [
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]),
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((f"${each['name']}", each["definition"]) for each in DASHBOARD["templating"]["list"]
      if each["type"] == "query"),
    *(("annotation", each["expr"]) for each in DASHBOARD["annotations"]["list"]),
    *(("docs", block) for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)),
]  # fmt: skip
IDS = [f"{n} {where}" for n, (where, _) in enumerate(ASKED)]
LABELS_OF_PROMETHEUS = {"job", "instance"}
LABELS = {label for family in FAMILIES.values() for s in family.samples for label in s.labels}
WORDS = {
    *(
        "sum",
        "min",
        "max",
        "count",
        "rate",
        "increase",
        "changes",
        "histogram_quantile",
        "max_over_time",
    ),
    *("by", "on", "group_right", "and", "or", "vector", "time", "label_values"),
}

TEXTS = re.compile(r'"[^"]*"')
MATCHERS = re.compile(r"\{([^}]*)\}")
RANGES = re.compile(r"\[[^\]]*\]")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
WANTED_LABEL = re.compile(r"label_values\((.*), (\w+)\)")
NAME = re.compile(r"[A-Za-z_]\w*")


def metrics_in(expression):
    """Names of series in a PromQL expression: what is neither a label nor a word of PromQL."""
    bare = RANGES.sub("", MATCHERS.sub("", TEXTS.sub("", expression)))
    bare = WANTED_LABEL.sub(r"\1", bare)
    return set(NAME.findall(GROUPED.sub("", bare))) - WORDS


def labels_in(expression):
    """Names of labels in a PromQL expression."""
    bare = TEXTS.sub("", expression)
    found = {name for inner in MATCHERS.findall(bare) for name in NAME.findall(inner)}
    found |= {name for inner in GROUPED.findall(bare) for name in NAME.findall(inner)}
    wanted = WANTED_LABEL.search(bare)
    return found | ({wanted[2]} if wanted else set())


def rows(heading):
    """The rows of the first table under a heading of the page, as lists of cells."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in table]


def test_names_are_found_in_an_expression():
    asked = 'sum by (campaign, le) (rate(vfb_a_bucket{x="$y", z=~"a|b"}[5m])) / on (job) vfb_b > 0'
    assert metrics_in(asked) == {"vfb_a_bucket", "vfb_b"}
    assert labels_in(asked) == {"campaign", "le", "x", "z", "job"}


@pytest.mark.parametrize(("where", "expression"), ASKED, ids=IDS)
def test_what_is_asked_of_prometheus_exists(where, expression):
    assert metrics_in(expression)
    assert metrics_in(expression) <= SERIES
    assert labels_in(expression) <= LABELS | LABELS_OF_PROMETHEUS


def test_the_dashboard_shows_every_metric():
    shown = {name for where, asked in ASKED for name in metrics_in(asked) if where != "docs"}
    families_shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert set(OURS) <= families_shown


def test_the_dashboard_has_its_rows_and_every_panel_its_place():
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert titles == [
        *("Traffic", "Rewards", "Participants", "Journal", "Model", "Process", "Access"),
        "Secret shares",
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_bytes_and_seconds_are_shown_as_such(panel):
    """By the suffix of the metric, which Prometheus asks to be its unit."""
    config = panel["fieldConfig"]
    overrides = {
        each["matcher"]["options"]: value["value"]
        for each in config["overrides"]
        for value in each["properties"]
        if value["id"] == "unit"
    }
    for target in panel["targets"]:
        unit = overrides.get(target["refId"], config["defaults"].get("unit"))
        for name in metrics_in(target["expr"]):
            if re.search(r"_bytes(_total)?$", name):
                assert unit in {"bytes", "Bps"}
            elif re.search(r"(?<!cpu)_seconds(_bucket)?$", name):
                assert unit == "s"


def test_panels_ask_the_chosen_data_source_about_the_chosen_job_and_campaigns():
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "campaign"]
    assert variables["campaign"]["multi"]
    for panel in PANELS:
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert 'job="$job"' in target["expr"]
            of_campaigns = any(
                "campaign" in sample.labels
                for family in FAMILIES.values()
                for sample in family.samples
                if sample.name in metrics_in(target["expr"])
            )
            assert ('campaign=~"$campaign"' in target["expr"]) == of_campaigns


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_legend_names_labels_that_its_series_keep(panel):
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = set().union(
            *(NAME.findall(g) for g in re.findall(r"by \(([^)]*)\)", target["expr"]))
        )
        if "by (" in target["expr"] and "group_right" not in target["expr"]:
            assert named <= kept
        assert named <= LABELS | LABELS_OF_PROMETHEUS


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_what_it_is_how_bad_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    page, anchor = notes["runbook"].split("#")
    assert page == "docs/monitoring.md"
    assert anchor == rule["alert"].lower()
    assert f"\n### {rule['alert']}\n" in PAGE
    named = {
        name
        for text in (notes["summary"], notes["description"])
        for name in re.findall(r"\$labels\.(\w+)", text)
    }
    assert named <= LABELS | LABELS_OF_PROMETHEUS
    if "by (" in rule["expr"] and "group_right" not in rule["expr"]:
        assert named <= labels_in(rule["expr"])


def test_the_page_has_an_entry_for_each_alert_and_no_other():
    section = PAGE.split("\n## What to do\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_the_table_of_metrics_has_those_that_there_are():
    told = {name: (kind, labels) for name, kind, labels, _ in rows("Metrics")}
    found = {}
    for name, family in OURS.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = family.type, labels
    assert set(told) == set(found)
    for name, (kind, labels) in found.items():
        assert (told[name][0], set(told[name][1].split(", ")) - {""}) == (kind, labels)


def test_the_metrics_of_the_process_are_named():
    named = set(re.findall(r"`(process_\w+)`", PAGE))
    assert named == {name for name in FAMILIES if name.startswith("process_")}


def test_the_numbers_of_series_are_those_of_a_scrape():
    told = re.search(
        r"about (\d+) for a campaign, (\d+) for a participant, (\d+) for a route",
        " ".join(PAGE.split()),
    )
    counted = dict.fromkeys(("campaign", "participant", "route"), 0)
    names = {"campaign": "news", "participant": "bank", "route": "/v1/rank"}
    for family in OURS.values():
        for sample in family.samples:
            for label, name in names.items():
                counted[label] += sample.labels.get(label) == name
    assert [int(number) for number in told.groups()] == pytest.approx(
        list(counted.values()), rel=0.15
    )


def test_the_example_scrapes_over_tls_with_a_key_from_a_file_and_reads_the_rules():
    (job,) = SCRAPE["scrape_configs"]
    assert SCRAPE["rule_files"] == ["prometheus-alerts.yml"]
    assert (job["scheme"], job["metrics_path"]) == ("https", "/metrics")
    assert set(job["authorization"]) == {"credentials_file"}
    assert job["tls_config"]["ca_file"]
    assert f'up{{job="{job["job_name"]}"}} == 0' in [rule["expr"] for rule in RULES]


def test_the_page_shows_the_example_and_names_files_that_there_are():
    (shown,) = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    (job,), (shown_job,) = SCRAPE["scrape_configs"], shown["scrape_configs"]
    assert shown_job.items() <= job.items()
    names = [
        row[0] for row in (line.strip("|").split("|") for line in PAGE.splitlines()[8:14]) if row
    ]
    assert {path.name for path in DEPLOY.iterdir()} >= {
        name.strip(" `") for name in names if "." in name
    }


def test_panels_that_the_page_names_are_on_the_dashboard():
    titles = {panel["title"] for panel in PANELS}
    section = PAGE.split("\n## What to do\n")[1].split("\n## ")[0]
    named = {" ".join(name.split()) for name in re.findall(r"\*([A-Z][^*]+)\*", section)}
    assert named
    assert named <= titles


def spans_in_the_source():
    """Names of spans that the server makes."""
    for folder in ("http", "serving", "telemetry"):
        for path in (ROOT / "src" / "vfbandits" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "span"
                    and isinstance(node.args[0], ast.Constant)
                ):
                    yield node.args[0].value


def test_the_table_of_spans_has_those_that_the_server_makes():
    section = PAGE.split("| span | parent |")[1]
    told = re.findall(r"^\| `([a-z ]+)` \|", section, re.MULTILINE)
    assert sorted(told) == sorted(spans_in_the_source())


def test_the_page_names_what_spans_carry():
    traces = PAGE.split("\n## Traces\n")[1]
    assert set(re.findall(r"`vfb\.(\w+)`", traces)) == set(Attributes.__annotations__)
