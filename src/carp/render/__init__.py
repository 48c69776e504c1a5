"""What a person sees: explanations, profiles and tables as terminal text, as a self-contained page, as JSON.

Plain data comes in; text goes out. Pages are filled into the templates beside this file, which escape everything that
comes from data.
"""
