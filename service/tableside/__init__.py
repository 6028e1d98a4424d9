"""Tableside, the service: random access by key to tables that live elsewhere."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Say which version is installed when it is asked for: to look it up takes longer than to import this."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("tableside")
        except PackageNotFoundError:  # the modules alone, say in a zip file
            return "0+unknown"
