"""The Tableside service: an asynchronous HTTP service for reading and writing records by key in several stores."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return the installed version. It is looked up on access, which takes longer than importing this module."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("tableside")
        except PackageNotFoundError:  # the modules without metadata, for example in a zip file
            return "0+unknown"
