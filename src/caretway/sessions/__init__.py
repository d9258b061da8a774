"""A turn's life across requests: parked while the client works, resumed by its tickets, continued by its transcript."""
