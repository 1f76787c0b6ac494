"""The table of a status document, also of one that another version wrote."""

from rich.console import Console

from vfbandits.cli.status_table import status_table

DOCUMENT = {
    "federation": "shops",
    "roster": {"number": 3, "digest": "ab" * 32},
    "epoch": 7,
    "terms": {"mask": "dense", "aggregation": "secure", "layout": "outer", "dim": 9},
    "seconds_up": 90_061.5,
    "counts": {"decisions": 12_345, "rewards": 12_000},
    "waiting_for_reward": 345,
    "participants": {
        "shop": {"width": 4, "connected": True, "circuit": "closed"},
        "bank": {
            "width": 3,
            "connected": True,
            "circuit": "open",
            "asks": 100,
            "answers": 90,
            "answer_missing": 7,
            "answer_declined": 2,
            "answer_refused": 1,
            "bytes": 7_200,
        },
        "news": {"width": 2, "connected": False, "circuit": "closed"},
    },
}


def lines_of(document):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(status_table(document))
    return captured.get().splitlines()


def test_every_participant_has_a_line_with_its_counts():
    rows = {line.split()[0]: line.split()[1:] for line in lines_of(DOCUMENT) if line.split()}
    assert rows["shop"] == ["4", "active", "–", "–", "–", "–", "–"]
    assert rows["bank"] == ["3", "yes", "open", "100", "90", "10", "7,200"]
    assert rows["news"] == ["2", "no", "closed", "0", "0", "0", "0"]


def test_what_holds_for_all_stands_around_it():
    text = "\n".join(lines_of(DOCUMENT))
    assert "shops: roster number 3 (abababababab…), mask epoch 7" in text
    assert "dense masks, secure sums, layout outer, 9 features" in text
    assert "12,345 decisions and 12,000 rewards in 1 d 1 h, 345 decisions wait" in text


def test_an_odd_document_makes_a_poor_table_and_no_error():
    odd = {"participants": {"shop": 3}, "counts": [], "seconds_up": "long"}
    assert "an unknown time" in "\n".join(lines_of(odd))
