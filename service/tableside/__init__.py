"""Tableside, the service: random access by key to tables that live elsewhere."""

from importlib.metadata import version

__version__ = version("tableside")
