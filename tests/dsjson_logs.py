"""A log of events as Azure Personalizer writes it, drawn from a seed."""

import json
import random

TIMES = ("Morning", "Noon", "Evening")
DRINKS = {"tea": "hot", "latte": "hot", "juice": "cold"}
BEST = "latte"


def event(number, *, rng, rewarded=True, **more):
    """One line: latte is what everybody likes, whatever the time."""
    names = list(DRINKS)
    weights = [rng.uniform(0.5, 1.0) for _ in names]
    probabilities = [weight / sum(weights) for weight in weights]
    chosen = rng.choices(range(len(names)), probabilities)[0]
    ranking = [chosen, *(place for place in range(len(names)) if place != chosen)]
    reward = 1.0 if names[chosen] == BEST else 0.0
    event_id = f"{rng.getrandbits(128):032x}"
    line = {
        "_label_cost": -reward,
        "_label_probability": probabilities[chosen],
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "o": [{"v": reward, "EventId": event_id, "ActionTaken": False}] if rewarded else [],
        "Timestamp": f"2021-02-04T16:{number // 60 % 60:02}:{number % 60:02}.2460000Z",
        "Version": "1",
        "EventId": event_id,
        "a": [place + 1 for place in ranking],
        "c": {
            "FromUrl": [{"timeOfDay": rng.choice(TIMES), "user": {"age": rng.randrange(18, 90)}}],
            "GLocation": {"country": rng.choice(["no", "ch"]), "_ip": "192.0.2.1"},
            "_multi": [
                {"_tag": name, "i": {"constant": 1, "id": name}, "j": [{"served": served}]}
                for name, served in DRINKS.items()
            ],
        },
        "p": [probabilities[place] for place in ranking],
        "VWState": {"m": "ff0744c1/550c12cb"},
        "_original_label_cost": -reward,
    }
    return {key: value for key, value in {**line, **more}.items() if value is not None}


def events(count, *, seed=0, **more):
    rng = random.Random(seed)  # noqa: S311  (a log for tests)
    return [event(number, rng=rng, **more) for number in range(count)]


def write(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path
