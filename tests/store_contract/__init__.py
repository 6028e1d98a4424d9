"""What every store must pass, and what every policy must: the promise of the seam, line by line.

A subclass says how a store is opened, or how a policy is put around one, and inherits the tests. What a store cannot
do is asked of its capabilities; a store whose clock cannot be set says so with `clock_can_be_set = False`, and passes
time by waiting for short times and is not asked to pass long ones.
"""

from .basics import Basics
from .contents import KeysAndValues
from .expiry import Expiry
from .opening import Open, Time, needs
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
    "COMPOSITE",
    "INTEGERS",
    "STRINGS",
    "THREE_PARTS",
    "UNUSUAL_KEYS",
    "Basics",
    "Expiry",
    "KeysAndValues",
    "Open",
    "PolicyContract",
    "Preconditions",
    "Scans",
    "StoreContract",
    "Time",
    "Tokens",
    "Updates",
    "etag",
    "needs",
    "one",
    "pages",
    "put",
    "record",
    "refused",
    "same",
    "scanned",
    "text",
    "update",
    "value",
    "written",
]


class StoreContract(Basics, KeysAndValues, Updates, Preconditions, Expiry, Tokens, Scans):
    """The whole of it: what a store's own test class inherits."""


class PolicyContract(Basics, Answers, Calls):
    """What a policy's own test class inherits.

    A policy may change when and in which calls a store is asked, and nothing that a caller can see. What only a store
    decides (values, the arithmetic of updates, the order of scans) is not tried again.
    """
