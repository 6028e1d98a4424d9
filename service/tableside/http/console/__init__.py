"""The web console: the state of each table, the activity of its policies, and single records.

The service renders pages, or fragments that htmx inserts. Plots are SVG. Numbers come from the service's own metrics
(`counts`, `console`). Reads and writes of records go through the catalog, like any request.
"""

from .console import Console, read_timed
from .routes import routes

__all__ = ["Console", "read_timed", "routes"]
