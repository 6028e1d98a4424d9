"""The contract of the store interface as test classes, one for stores and one for policies.

A subclass opens a store, or wraps a policy around one, and inherits the tests. Tests skip features that the store's
capabilities exclude. If a store's clock cannot be set (`clock_can_be_set = False`), its tests wait for short times in
real time and skip long ones.
"""

from .basics import Basics
from .contents import KeysAndValues
from .expiry import Expiry
from .opening import Open, Time, needs
from .orders import Orders
from .partitions import PartitionScans
from .policy_answers import Answers
from .policy_calls import Calls
from .preconditions import Preconditions
from .scans import Scans
from .tokens import Tokens
from .updating import Updates
from .words import (
    COMPOSITE,
    INTEGERS,
    STRINGS,
    THREE_PARTS,
    UNUSUAL_KEYS,
    etag,
    freed_at_once,
    one,
    pages,
    put,
    record,
    refused,
    same,
    scanned,
    text,
    update,
    value,
    written,
)

__all__ = [
    "COMPOSITE", "INTEGERS", "STRINGS", "THREE_PARTS", "UNUSUAL_KEYS", "Basics", "Expiry", "KeysAndValues", "Open",
    "Orders", "PartitionScans", "PolicyContract", "Preconditions", "Scans", "StoreContract", "Time", "Tokens",
    "Updates", "etag", "freed_at_once", "needs", "one", "pages", "put", "record", "refused", "same", "scanned", "text",
    "update", "value", "written",
]  # fmt: skip


class StoreContract(Basics, KeysAndValues, Updates, Preconditions, Expiry, Tokens, Orders, Scans):
    """The complete contract. The test class of a store inherits it."""


class PolicyContract(Basics, Answers, Calls):
    """The contract of a policy. The test class of a policy inherits it.

    A policy may change when the store is called and how operations are grouped into calls, but no outcome. The tests
    leave out values, update arithmetic and scan order, which only the store decides.
    """
