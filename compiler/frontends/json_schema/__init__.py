"""Package compiler/frontends/json_schema."""
