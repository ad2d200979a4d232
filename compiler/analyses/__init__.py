"""What can be said of a machine without decoding with it; docs/analyses.md lists the modules and their theorems."""
