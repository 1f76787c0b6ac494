"""``vfb serve`` in which a background task dies while a certain file is there.

    python faulty_server.py FILE WHERE active --config ...

``WHERE`` is one of ``FAULTS``.  Nothing else differs from the real program.
"""

import importlib
import sys
from pathlib import Path

# What each background task calls again and again.
FAULTS = {
    "settle": ("vfbandits.serving.leader", "Leader", "settle"),
    "federation": ("vfbandits.serving.active", "ActiveService", "_tick"),
    "link": ("vfbandits.participant.passive", "PassiveService", "_answer"),
    "journal": ("vfbandits.serving.durable", "DurableBandit", "snapshot"),
}


def inject(fault, where):
    module, kind, name = FAULTS[where]
    owner = getattr(importlib.import_module(module), kind)
    real = getattr(owner, name)

    def faulty(self, *args, **more):
        if fault.exists():
            raise RuntimeError("an injected fault")
        return real(self, *args, **more)

    setattr(owner, name, faulty)


if __name__ == "__main__":
    fault, where = Path(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    from vfbandits.cli.serve import serve_app
    from vfbandits.transport import event_loop

    real_run = event_loop.run

    def run(main):
        inject(fault, where)
        return real_run(main)

    event_loop.run = run
    serve_app()
