"""The page for people: which table is ill, what its policies do, and one record at a time.

Pages are made here, whole or in parts that htmx puts in place; the plots are SVG. What they show comes from the
service's own metrics (`reading`, `history`), what they do to records goes through the catalog like any request.
"""

from .console import Console
from .routes import routes

__all__ = ["Console", "routes"]
