"""Models measured on the same splits: grids that can be stopped and continued, studies, and reports.

Corpora and settings come in; one line of results a cell goes out, and from those tables, plots and a page.
"""
