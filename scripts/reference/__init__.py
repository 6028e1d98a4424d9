"""Generate the page of the settings and the schema of the chart's configuration from the code, and the figures.

`references` maps each file to its generator: `settings` generates the page, and `values_schema` the schema.
`phrases` describes JSON schemas in words.
"""
