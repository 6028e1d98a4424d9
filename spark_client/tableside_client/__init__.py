"""The HTTP client of the service for Python programs. It needs httpx, and pyarrow only for Arrow and frames.

`Client` is blocking, `AsyncClient` is for asyncio. Imports no other package of this project.
"""

from tableside_client.asynchronous import AsyncClient, AsyncTable
from tableside_client.blocking import Client, Table
from tableside_client.errors import (
    AccessDenied,
    FrameWriteError,
    GenerationNotFound,
    GenerationSealed,
    InvalidOperation,
    LoadError,
    PreconditionFailed,
    RecordNotFound,
    TableNotFound,
    TablesideError,
    Unavailable,
)
from tableside_client.generations import Generation
from tableside_client.operators import col
from tableside_client.results import Outcome, Record, Written
from tableside_client.retries import Retries

__all__ = [
    "AccessDenied", "AsyncClient", "AsyncTable", "Client", "FrameWriteError", "Generation", "GenerationNotFound",
    "GenerationSealed", "InvalidOperation", "LoadError", "Outcome", "PreconditionFailed", "Record", "RecordNotFound",
    "Retries", "Table", "TableNotFound", "TablesideError", "Unavailable", "Written", "col",
]  # fmt: skip
