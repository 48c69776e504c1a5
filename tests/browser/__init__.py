"""A package, so that its tests share one browser, and no others do."""
