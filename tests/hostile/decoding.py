"""Fuzz the decoders of requests with atheris until the inputs run out or one reveals a fault.

`python -m hostile.decoding FOLDER SEED RUNS`. The first byte of an input selects the decoder. The process stops at the
first exception, crash, timeout or excess of memory with an exit code other than 0.
"""

import importlib
import sys
from pathlib import Path

INPUT_S_MAX = 10
INPUT_MB_MAX = 1024
INPUT_BYTES_MAX = 8192


def main() -> None:
    """Let atheris mutate the seeds, and look for inputs that reach new code. It ends the process."""
    import atheris  # type: ignore[import-untyped]  # it ships none

    folder, seed, runs = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    with atheris.instrument_imports(include=["tableside"]):
        decoders = importlib.import_module("hostile.decoders")
    for number, one in enumerate(decoders.selecting_seeds()):
        (folder / str(number)).write_bytes(one)
    options = (
        *(f"-runs={runs}", f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_S_MAX}"),
        *(f"-rss_limit_mb={INPUT_MB_MAX}", f"-artifact_prefix={folder}/fault-", "-len_control=0", "-verbosity=0"),
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], *options, str(folder)], decoders.decode)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
