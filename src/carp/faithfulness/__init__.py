"""Are the explanations true? Measured on held-out pairs, against chance."""
