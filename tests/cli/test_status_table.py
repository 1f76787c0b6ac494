"""The table of a status document, also of one that another version wrote."""

from rich.console import Console

from vfbandits.cli.status_table import status_table

DOCUMENT = {
    "federation": "shops",
    "roster": {"number": 3, "digest": "ab" * 32},
    "epoch": 7,
    "terms": {"mask": "dense", "aggregation": "secure", "layout": "outer", "dim": 9},
    "at": 1_000_000.0,
    "seconds_up": 90_061.5,
    "counts": {"decisions": 12_345, "rewards": 12_000},
    "waiting_for_reward": 345,
    "participants": {
        "shop": {"width": 4, "connected": True, "circuit": "closed"},
        "bank": {
            "width": 3,
            "connected": True,
            "circuit": "open",
            "protocol": 1,
            "since": 999_940.0,
            "asks": 100,
            "answers": 90,
            "answer_missing": 7,
            "answer_declined": 2,
            "answer_refused": 1,
            "bytes": 7_200,
        },
        "news": {"width": 2, "connected": False, "circuit": "closed", "since": 990_000.0},
        "telco": {"width": 2, "connected": True, "circuit": "closed", "protocol": 12},
    },
}


def lines_of(document, *, width=200):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(status_table(document))
    return captured.get().splitlines()


def test_the_noise_of_a_participant_is_told_with_its_unit():
    noise = {"epsilon": 10.0, "delta": 1e-06, "clip": 1.5, "unit": "vector"}
    bank = {**DOCUMENT["participants"]["bank"], "noise": noise}
    told = lines_of({**DOCUMENT, "participants": {**DOCUMENT["participants"], "bank": bank}})
    assert "noise of bank: ε = 10.0 per vector, δ = 1e-06, clip 1.5" in map(str.strip, told)
    assert not [line for line in lines_of(DOCUMENT) if "noise" in line]


def test_every_participant_has_a_line_with_its_counts():
    rows = {line.split()[0]: line.split()[1:] for line in lines_of(DOCUMENT) if line.split()}
    assert rows["shop"] == ["4", "active", "–", "–", "–", "–", "–"]
    assert rows["bank"] == [
        *("3", "circuit", "open", "1", "min", "0", "s"),
        *("1", "100", "90", "10", "7.2", "kB"),
    ]
    assert rows["news"] == ["2", "missing", "2", "h", "46", "min", "–", "0", "0", "0", "0", "B"]
    assert rows["telco"] == ["2", "connected", "12", "0", "0", "0", "0", "B"]


def test_what_holds_for_all_stands_around_it():
    text = "\n".join(lines_of(DOCUMENT))
    assert "shops: roster number 3 (abababababab…), mask epoch 7" in text
    assert "dense masks, secure sums, layout outer, 9 features" in text
    assert "12,345 decisions and 12,000 rewards in 1 d 1 h, 345 decisions pending" in text


def test_an_odd_document_makes_a_poor_table_and_no_error():
    odd = {"participants": {"shop": 3}, "counts": [], "seconds_up": "long"}
    assert "an unknown time" in "\n".join(lines_of(odd))


def test_no_number_is_cut_in_a_terminal_of_80_columns():
    busy = {
        "width": 1_000, "connected": False, "circuit": "closed", "since": 1_000.0,
        "asks": 1_916_034, "answers": 1_915_991, "answer_missing": 10_043, "bytes": 153_282_720_000,
    }  # fmt: skip
    names = ["shop", "a-participant-whose-name-is-as-long-as-a-domain.example"]
    lines = lines_of({**DOCUMENT, "participants": dict.fromkeys(names, busy)}, width=80)
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    for whole in ("1000", "missing 11 d 13 h", "1,916,034", "1,915,991", "10,043", "153.3 GB"):
        assert whole in text
    table = [line for line in lines if not line.startswith(("shops:", "dense"))]
    assert "…" not in "".join(table)


def test_campaigns_are_listed_when_there_are_several():
    one = {"decisions": 12_000, "rewards": 11_000, "waiting_for_reward": 1_000}
    assert "default:" not in "\n".join(lines_of({**DOCUMENT, "campaigns": {"default": one}}))
    several = lines_of({**DOCUMENT, "campaigns": {"default": one, "news": {}}})
    assert "  default: 12,000 decisions, 11,000 rewards, 1,000 pending" in "\n".join(several)
    assert "  news: 0 decisions, 0 rewards, 0 pending" in "\n".join(several)


def test_why_both_servers_of_secret_shares_do_not_decide_is_shown_as_it_is():
    shares = {"helper": "bank", "learns": "the arm of a decision", "alone": 3}
    assert not [line for line in lines_of({**DOCUMENT, "shares": shares}) if "alone: " in line]
    away = "no dealt words are left: wanted /srv/[red]/shop.deal"
    shown = lines_of({**DOCUMENT, "shares": {**shares, "away": away}})
    assert f"on own features alone: {away}" in [line.strip() for line in shown]
