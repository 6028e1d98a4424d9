"""Generate the reference pages of the documentation from the code: HTTP interface, settings, command line, chart.

`references` maps each page to its generator: `rest`, `settings`, `command_line` and `chart` generate one page each.
`phrases` describes JSON schemas in words.
"""
