# SPDX-License-Identifier: MIT
"""What makes the documentation's site of docs/, beside MkDocs; `make docs` and mkdocs.yml start it."""
