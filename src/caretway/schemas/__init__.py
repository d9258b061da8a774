"""JSON Schema with bounds: checks values, fits tool schemas to a model's vendor, merges schemas. Pure."""
