"""Writes the pages of the documentation that are made from the code: what it takes over HTTP, its settings, its verbs.

`references` knows which page is made by what; `rest`, `settings`, `command_line` and `chart` make one each; `phrases`
says in words what a JSON schema says.
"""
