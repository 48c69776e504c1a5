"""From a prediction to an `Explanation`: why this person would rate this thing so.

A fitted model and a question about a pair come in; explanations, profiles and summaries go out as plain data, which
`render` shows. `faithfulness` measures whether they are true.
"""
