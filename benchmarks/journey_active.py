"""``vfb serve`` in this process, with a tracer: ``python -m benchmarks.journey_active ARGUMENTS``.

For each line ``begin FILE`` or ``end FILE`` on its standard input it starts or ends a journey, and
says so with the same word; an ended journey is in the file, as JSON.  The first journey, the start
of the participant itself, begins before the command does.
"""

import json
import sys
import threading
from pathlib import Path

from benchmarks.journey_trace import Tracer
from vfbandits.cli.serve import serve_app


def main() -> None:
    """Trace every thread but the one that takes commands."""
    tracer = Tracer()
    threading.Thread(target=_take_commands, args=(tracer,), daemon=True).start()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    tracer.begin()
    serve_app(sys.argv[1:])


def _take_commands(tracer: Tracer) -> None:
    for line in sys.stdin:
        command, _, path = line.strip().partition(" ")
        if command == "begin":
            tracer.begin()
        else:
            journey = tracer.end()
            document = {"calls": journey.calls, "rooms_by_class": journey.rooms_by_class}
            Path(path).write_text(json.dumps(document), encoding="utf-8")
        print(command, flush=True)  # noqa: T201  (the benchmark reads it)


if __name__ == "__main__":
    main()
