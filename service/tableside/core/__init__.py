"""The API for stores: operations, outcomes, errors, keys, and the interfaces that a store implements.

Values are immutable, and functions are pure except functions that run tasks. Built-in stores and plug-ins import only
from this package. It imports no other package of Tableside. An import with `as` exports its name.
"""

from .backend import (
    Backend as Backend,
    BackendType as BackendType,
    Connections as Connections,
    Disk as Disk,
    NoOptions as NoOptions,
    WriteHealth as WriteHealth,
)
from .batch import (
    ARROW_RECORDS_MIN as ARROW_RECORDS_MIN,
    Applying as Applying,
    Batch as Batch,
    Results as Results,
    apply_by_kind as apply_by_kind,
    apply_in_groups as apply_in_groups,
    etag_column as etag_column,
    has_only as has_only,
    joined_cells as joined_cells,
    joined_outcomes as joined_outcomes,
    shared as shared,
)
from .budget import (
    NO_DEADLINE as NO_DEADLINE,
    NOT_READ as NOT_READ,
    READ_BYTES_MAX as READ_BYTES_MAX,
    UPDATE_BYTES_MAX as UPDATE_BYTES_MAX,
    BoundedReads as BoundedReads,
    Budget as Budget,
    ReadBudget as ReadBudget,
    ValueRoom as ValueRoom,
    run_in_thread as run_in_thread,
    value_bytes as value_bytes,
    without_value as without_value,
)
from .compare_and_set import (
    CompareAndSet as CompareAndSet,
    Replacement as Replacement,
    VersionedRecord as VersionedRecord,
)
from .concurrency import (
    Yielder as Yielder,
    chunks_of as chunks_of,
    exponential_backoff_s as exponential_backoff_s,
    gather_bounded as gather_bounded,
)
from .errors import (
    Applied as Applied,
    Contended as Contended,
    DeadlineExceeded as DeadlineExceeded,
    Internal as Internal,
    InvalidOperation as InvalidOperation,
    MalformedRequest as MalformedRequest,
    RecordUnreadable as RecordUnreadable,
    StoreMisconfigured as StoreMisconfigured,
    StoreUnavailable as StoreUnavailable,
    TableError as TableError,
    TableNotFound as TableNotFound,
    Throttled as Throttled,
    TooLarge as TooLarge,
    Unsupported as Unsupported,
    WritesRejected as WritesRejected,
    quoted_list as quoted_list,
)
from .keys import (
    KeyField as KeyField,
    KeySchema as KeySchema,
    PartType as PartType,
    Range as Range,
    checked_part as checked_part,
    even_splits as even_splits,
    part_from_text as part_from_text,
)
from .operations import (
    FLAGS as FLAGS,
    NO_EXPIRY as NO_EXPIRY,
    Delete as Delete,
    Get as Get,
    Key as Key,
    Operation as Operation,
    Outcome as Outcome,
    Part as Part,
    PartitionOutcome as PartitionOutcome,
    Put as Put,
    Record as Record,
    Token as Token,
    Update as Update,
    Write as Write,
    Written as Written,
    is_remembered as is_remembered,
    size_bytes as size_bytes,
)
from .partitioner import target_partitions as target_partitions
from .store import (
    DELETE_MEMORY_S as DELETE_MEMORY_S,
    PAGE_SEARCH_S as PAGE_SEARCH_S,
    PAGE_SKIPPED_MAX as PAGE_SKIPPED_MAX,
    Capabilities as Capabilities,
    Clock as Clock,
    Estimate as Estimate,
    KeyedRecords as KeyedRecords,
    Page as Page,
    PageBuilder as PageBuilder,
    Scan as Scan,
    Store as Store,
    TableSpec as TableSpec,
    now_ms as now_ms,
    scan_range as scan_range,
)
from .transitions import (
    EXPIRY_MS_MAX as EXPIRY_MS_MAX,
    NO_MEMORY as NO_MEMORY,
    WRITERS_MAX as WRITERS_MAX,
    Changed as Changed,
    Memory as Memory,
    Stored as Stored,
    Transition as Transition,
    expiries_ms as expiries_ms,
    expiry_ms as expiry_ms,
    live_record as live_record,
    put_columns as put_columns,
    transition as transition,
    with_etag as with_etag,
)
from .update_operators import OPERATORS as OPERATORS, Edit as Edit
from .updates import Change as Change, Changes as Changes
from .urls import (
    check_port as check_port,
    checked_url as checked_url,
    environment_proxy as environment_proxy,
    split_url as split_url,
    url_place as url_place,
)
from .values import (
    INTEGER_MAX as INTEGER_MAX,
    INTEGER_MIN as INTEGER_MIN,
    Json as Json,
    JsonObject as JsonObject,
    check_elements as check_elements,
    decode as decode,
    encode as encode,
    encode_foreign as encode_foreign,
    encode_sorted as encode_sorted,
    normalize_number as normalize_number,
    parse as parse,
)
