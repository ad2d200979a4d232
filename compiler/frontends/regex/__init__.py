"""The regex front end: patterns of two dialects to minimal DFAs over UTF-8."""
