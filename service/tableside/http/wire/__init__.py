"""Decodes requests into operations and encodes outcomes. It is the only package with status codes and media types.

JSON and Arrow share the declarations of members (`members`), their meaning (`operation_members`) and
the conversion of outcomes (`answers`), so that the same operations have the same outcomes in both.
"""
