"""The API for stores: operations, outcomes, errors, keys, and the interfaces that a store implements.

Values are immutable, and functions are pure except functions that run tasks. Built-in stores and plug-ins import only
from this package. It imports no other package of Tableside.
"""

from .arrow_texts import etag_column, have_text, may_be_column, text_of
from .backend import Backend, BackendType, Connections, NoOptions
from .backoff import exponential_backoff_s
from .batch import Batch, KeyedRecords, Results, apply_by_kind, apply_in_groups, joined_outcomes
from .bounded_reads import (
    NOT_READ,
    READ_BYTES_MAX,
    UPDATE_BYTES_MAX,
    BoundedReads,
    ReadBudget,
    value_bytes,
    without_value,
)
from .changes import Changes, Edits, MergePatch
from .compare_and_set import CompareAndSet, Replacement, VersionedRecord
from .concurrency import Yielder, chunks_of, gather_bounded, run_in_thread
from .deadlines import run_until
from .errors import (
    Applied,
    Contended,
    DeadlineExceeded,
    Internal,
    InvalidOperation,
    MalformedRequest,
    RecordUnreadable,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
    Unsupported,
    WritesRejected,
)
from .json_text import check_elements
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
from .proxies import EnvironmentProxy, environment_proxy
from .quoting import quoted_list
from .store import Capabilities, Clock, Page, Scan, Store, TableSpec, now_ms
from .transitions import (
    EXPIRY_MS_MAX,
    WRITERS_MAX,
    Changed,
    Stored,
    Transition,
    expiry_ms,
    is_unconditional,
    live_record,
    transition,
    with_etag,
)
from .update_operators import OPERATORS
from .updates import touched_members
from .urls import check_port, checked_url, url_place
from .values import INTEGER_MAX, INTEGER_MIN, Json, JsonObject, decode, encode, encode_sorted, normalize_number, parse
from .write_health import WriteHealth

__all__ = [
    "EXPIRY_MS_MAX",
    "INTEGER_MAX",
    "INTEGER_MIN",
    "NOT_READ",
    "NO_EXPIRY",
    "OPERATORS",
    "PAGE_SEARCH_S",
    "PAGE_SKIPPED_MAX",
    "READ_BYTES_MAX",
    "UPDATE_BYTES_MAX",
    "WRITERS_MAX",
    "Applied",
    "Backend",
    "BackendType",
    "Batch",
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
    "EnvironmentProxy",
    "Get",
    "Internal",
    "InvalidOperation",
    "Json",
    "JsonObject",
    "Key",
    "KeyField",
    "KeySchema",
    "KeyedRecords",
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
    "RecordUnreadable",
    "Replacement",
    "Results",
    "Scan",
    "Store",
    "StoreMisconfigured",
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
    "apply_by_kind",
    "apply_in_groups",
    "check_elements",
    "check_port",
    "checked_part",
    "checked_url",
    "chunks_of",
    "decode",
    "encode",
    "encode_sorted",
    "environment_proxy",
    "etag_column",
    "expiry_ms",
    "exponential_backoff_s",
    "gather_bounded",
    "have_text",
    "is_unconditional",
    "joined_outcomes",
    "live_record",
    "may_be_column",
    "normalize_number",
    "now_ms",
    "parse",
    "part_from_text",
    "prefix_end",
    "quoted_list",
    "ranges_between",
    "run_in_thread",
    "run_until",
    "scan_range",
    "size_bytes",
    "target_partitions",
    "text_of",
    "touched_members",
    "transition",
    "url_place",
    "value_bytes",
    "with_etag",
    "without_value",
]
