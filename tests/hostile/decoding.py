"""Run in a process of its own: one decoder is given many inputs, and ends the process with the first fault.

`python -m hostile.decoding NAME FOLDER RUNS SEED`: atheris looks for inputs that lead where none led before,
from the seeds on; an input may take so much time and memory. A crash, be it of a library, ends the process too. What
did it is left in the folder.
"""

import sys
from pathlib import Path

INPUT_S_MAX = 10
INPUT_MB_MAX = 1024
INPUT_BYTES_MAX = 8192


def main() -> None:
    """Fuzz."""
    import atheris  # type: ignore[import-untyped]  # it ships none

    name, folder, runs, seed = sys.argv[1:]
    with atheris.instrument_imports(include=["tableside"]):
        from hostile import decoders, seeds
    corpus = Path(folder) / "corpus"
    corpus.mkdir(parents=True)
    for number, one in enumerate(seeds.seeds(name)):
        (corpus / str(number)).write_bytes(one)
        decoders.decode(name, one)
    options = (
        *(f"-runs={runs}", f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_S_MAX}"),
        *(f"-rss_limit_mb={INPUT_MB_MAX}", f"-artifact_prefix={folder}/", "-len_control=0", "-verbosity=0"),
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: decoders.decode(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
