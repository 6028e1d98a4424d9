"""Generate the reference pages of the documentation from the code: HTTP interface, settings, command line.

`references` maps each page to its generator: `rest`, `settings` and `command_line` generate one page each.
`phrases` describes JSON schemas in words.
"""
