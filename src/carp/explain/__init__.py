"""From a prediction to an `Explanation`: why this person would rate this thing so.

A fitted model and a question about a pair come in; explanations, profiles and summaries go out as plain data, which
`render` shows. `faithfulness` measures whether they are true.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
