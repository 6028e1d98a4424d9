"""Fuzz decoders with atheris, each in its own process, until the inputs run out or one reveals a fault.

`python -m hostile.decoding FOLDER SEED NAME=RUNS …`. The decoders are imported and instrumented once. A child process
per decoder is forked from there. A child stops at the first exception, crash, timeout or excess of memory. It leaves
its output in FOLDER/NAME/log and an input that revealed a fault in FOLDER/NAME/faults. The program prints the exit
codes as a JSON object.
"""

import importlib
import json
import os
import sys
from pathlib import Path

INPUT_S_MAX = 10
INPUT_MB_MAX = 1024
INPUT_BYTES_MAX = 8192


def main() -> None:
    """Fuzz one decoder after the other."""
    import atheris  # type: ignore[import-untyped]  # it ships none

    folder, seed, *pairs = sys.argv[1:]
    with atheris.instrument_imports(include=["tableside"]):
        importlib.import_module("hostile.decoders")
    runs = dict(pair.split("=") for pair in pairs)
    print(json.dumps({name: forked(Path(folder) / name, name, seed, runs[name]) for name in runs}))


def forked(folder: Path, name: str, seed: str, runs: str) -> int:
    """Fuzz a decoder in a child process and return its exit code, which is negative for a signal."""
    (folder / "corpus").mkdir(parents=True)
    (folder / "faults").mkdir()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    fuzz(folder, name, seed, runs)
    os._exit(0)


def fuzz(folder: Path, name: str, seed: str, runs: str) -> None:
    """Let atheris mutate the seeds of a decoder and look for inputs that reach new code. It ends the process."""
    import atheris

    from hostile import decoders, seeds

    for number, one in enumerate(seeds.seeds(name)):
        (folder / "corpus" / str(number)).write_bytes(one)
        decoders.decode(name, one)
    options = (
        *(f"-runs={runs}", f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_S_MAX}"),
        *(f"-rss_limit_mb={INPUT_MB_MAX}", f"-artifact_prefix={folder}/faults/", "-len_control=0", "-verbosity=0"),
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], lambda data: decoders.decode(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
