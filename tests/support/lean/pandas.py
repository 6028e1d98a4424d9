"""Hides pandas from services of tests, like the image, which has none.

PyArrow imports pandas if it is installed, and this takes a fifth of the time in which a service starts.
"""

raise ImportError("the service does not use pandas")
