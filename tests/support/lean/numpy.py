"""Hides NumPy from services of tests, like the image, which has none. PyArrow imports it if it is installed."""

raise ImportError("the service does not use NumPy")
