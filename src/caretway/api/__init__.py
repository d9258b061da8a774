"""The HTTP side: connections, and the application behind them. It knows dialects and sessions, and no backend."""
