"""JSON Schema with bounds: check a value, fit a tool's schema to a model's maker, merge. Pure."""
