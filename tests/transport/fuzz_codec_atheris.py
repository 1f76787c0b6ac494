"""Coverage-guided fuzzing of the decoders, by hand: atheris is no dependency of ours.

    PYTHONPATH=tests python tests/transport/fuzz_codec_atheris.py -runs=100000

It starts from the messages of test_fuzz_codec.py, and asks of each input what that asks.
"""

import sys
import tempfile
from pathlib import Path


def main() -> None:
    import atheris  # noqa: PLC0415  pytest imports this file too

    with atheris.instrument_imports(include=["vfbandits"]):
        from transport.test_fuzz_codec import SEEDS, attack  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], attack)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
