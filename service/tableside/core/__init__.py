"""The API for stores: operations, outcomes, errors, keys, and the interfaces that a store implements.

Values are immutable, and functions are pure except functions that run tasks. Built-in stores and plug-ins import only
from this package. It imports no other package of Tableside.
"""

from .backend import Backend, BackendType, Connections, NoOptions
from .backoff import exponential_backoff_s
from .bounded_reads import UPDATE_BYTES_MAX, BoundedReads, ReadBudget
from .changes import Changes, Edits, MergePatch
from .columns import COLUMN_BYTES_MAX, GetColumn, LazySequence, RecordColumns, etag_column, text_of
from .compare_and_set import CompareAndSet, Replacement, VersionedRecord
from .concurrency import Yielder, chunks_of, gather_bounded
from .deadlines import run_until
from .decisions import decide, takes_long
from .element_limit import check_elements
from .errors import (
    Applied,
    Contended,
    DeadlineExceeded,
    Internal,
    InvalidOperation,
    MalformedRequest,
    RecordUnreadable,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
    Unsupported,
    WritesRejected,
)
from .key_ranges import Range, ranges_between, scan_range
from .keys import KeyField, KeySchema, PartType, checked_part, part_from_text, prefix_end
from .operations import (
    NO_EXPIRY,
    Delete,
    Get,
    Key,
    Operation,
    Outcome,
    Part,
    PartitionOutcome,
    Put,
    Record,
    Token,
    Update,
    Write,
    Written,
    size_bytes,
)
from .page_builder import PAGE_SEARCH_S, PAGE_SKIPPED_MAX, PageBuilder
from .partitioner import target_partitions
from .path_set import Path
from .quoting import quoted_list
from .read_limit import NOT_READ, READ_BYTES_MAX, value_bytes, without_value
from .slices import run_apart, run_in_thread
from .store import Capabilities, Clock, Page, Scan, Store, TableSpec, now_ms
from .transitions import (
    EXPIRY_MS_MAX,
    WRITERS_MAX,
    Changed,
    Stored,
    Transition,
    are_plain_puts,
    is_unconditional,
    live_record,
    transition,
    with_etag,
)
from .updates import touched_members
from .urls import check_port, checked_url, url_place
from .values import INTEGER_MAX, INTEGER_MIN, Json, JsonObject, decode, encode, encode_sorted, normalize_number, parse
from .write_health import WriteHealth

__all__ = [
    "COLUMN_BYTES_MAX",
    "EXPIRY_MS_MAX",
    "INTEGER_MAX",
    "INTEGER_MIN",
    "NOT_READ",
    "NO_EXPIRY",
    "PAGE_SEARCH_S",
    "PAGE_SKIPPED_MAX",
    "READ_BYTES_MAX",
    "UPDATE_BYTES_MAX",
    "WRITERS_MAX",
    "Applied",
    "Backend",
    "BackendType",
    "BoundedReads",
    "Capabilities",
    "Changed",
    "Changes",
    "Clock",
    "CompareAndSet",
    "Connections",
    "Contended",
    "DeadlineExceeded",
    "Delete",
    "Edits",
    "Get",
    "GetColumn",
    "Internal",
    "InvalidOperation",
    "Json",
    "JsonObject",
    "Key",
    "KeyField",
    "KeySchema",
    "LazySequence",
    "MalformedRequest",
    "MergePatch",
    "NoOptions",
    "Operation",
    "Outcome",
    "Page",
    "PageBuilder",
    "Part",
    "PartType",
    "PartitionOutcome",
    "Path",
    "Put",
    "Range",
    "ReadBudget",
    "Record",
    "RecordColumns",
    "RecordUnreadable",
    "Replacement",
    "Scan",
    "Store",
    "StoreUnavailable",
    "Stored",
    "TableError",
    "TableNotFound",
    "TableSpec",
    "Throttled",
    "Token",
    "TooLarge",
    "Transition",
    "Unsupported",
    "Update",
    "VersionedRecord",
    "Write",
    "WriteHealth",
    "WritesRejected",
    "Written",
    "Yielder",
    "are_plain_puts",
    "check_elements",
    "check_port",
    "checked_part",
    "checked_url",
    "chunks_of",
    "decide",
    "decode",
    "encode",
    "encode_sorted",
    "etag_column",
    "exponential_backoff_s",
    "gather_bounded",
    "is_unconditional",
    "live_record",
    "normalize_number",
    "now_ms",
    "parse",
    "part_from_text",
    "prefix_end",
    "quoted_list",
    "ranges_between",
    "run_apart",
    "run_in_thread",
    "run_until",
    "scan_range",
    "size_bytes",
    "takes_long",
    "target_partitions",
    "text_of",
    "touched_members",
    "transition",
    "url_place",
    "value_bytes",
    "with_etag",
    "without_value",
]
