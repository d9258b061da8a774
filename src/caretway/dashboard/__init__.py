"""The dashboard: the gateway's state as snapshots and changes, for a browser and `caretway top`."""
