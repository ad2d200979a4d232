"""Package compiler/frontends/regex."""
