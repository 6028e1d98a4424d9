"""Policies: stores around a store.

The stack, outside in: measure, then the store. `catalog.stack` is where the order is written down.
"""
