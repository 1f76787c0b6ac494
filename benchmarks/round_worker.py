"""A process that plays rounds of one contestant when told to.

Contestants of the federation's bars must not share an event loop, so each has a process to itself.
One line of settings comes in; then, for every line ``rounds in_flight``, one line of seconds goes
out.  Whoever is not asked sleeps.
"""

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict

from benchmarks.latencies import Play, measure_rounds
from benchmarks.live_federation import LiveFederation, Shape
from benchmarks.raw_fan_out import RawFanOut
from benchmarks.raw_streams import RawStreams
from vfbandits.simulate.threads import one_thread
from vfbandits.transport.event_loop import run


async def serve(contestant: AbstractAsyncContextManager[object], play: Play) -> None:
    """Play whenever a line comes, until there are no more."""
    loop = asyncio.get_running_loop()
    async with contestant:
        print(json.dumps("ready"), flush=True)  # noqa: T201  (the other end reads it)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            rounds, in_flight = map(int, line.split())
            seen = await measure_rounds(play, rounds, in_flight=in_flight)
            facts = {**asdict(seen), "bytes": getattr(contestant, "bytes_received", 0)}
            print(json.dumps(facts), flush=True)  # noqa: T201


def main() -> None:
    """Read who plays, and play."""
    settings = json.loads(sys.stdin.readline())
    kind = settings.pop("kind")
    with one_thread():
        if kind == "federation":
            only_gather = settings.pop("only_gather")
            ours = LiveFederation(Shape(**settings))
            run(serve(ours, ours.gather if only_gather else ours.decide))  # as services do
        elif kind == "streams":
            streams = RawStreams(settings["n_answerers"], settings["size_bytes"])
            asyncio.run(serve(streams, streams.round))
        else:
            raw = RawFanOut(**settings)
            asyncio.run(serve(raw, raw.round))


if __name__ == "__main__":
    main()
