"""What a person sees: explanations, profiles and tables as terminal text, as a self-contained page, as JSON.

Plain data comes in; text goes out. Whatever comes from data is escaped on its way into a page.
"""
