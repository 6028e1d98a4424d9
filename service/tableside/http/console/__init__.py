"""The web console: the state of each table, its recent activity, and its records. It changes nothing.

The service renders pages without scripts. Numbers come from the service's own metrics (`console`). Reads of records go
through the catalog, like any request.
"""

from .console import Console as Console, read_timed as read_timed
from .routes import routes as routes
