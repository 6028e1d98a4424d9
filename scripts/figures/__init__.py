"""Draws the figures of the documentation, `docs/images/*.svg`, from the YAML files in this directory.

`scripts/run python -m scripts.reference` renews the figures together with the generated files. A figure of `boxes` has
boxes, arrows between them and labels, with positions in pixels. A figure of `actors` is a sequence of messages.
"""
