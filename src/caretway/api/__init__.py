"""The HTTP side: connections and the application behind them. Imports dialects and sessions, but no backend."""
