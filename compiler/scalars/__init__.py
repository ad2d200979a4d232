"""Scalar languages: number texts and string formats, each one minimal DFA."""
