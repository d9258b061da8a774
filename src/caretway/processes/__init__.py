"""Child processes: started without a fork, ended with their whole group, read within bounds. Open to every room.

Knows neither which programs run nor what their output means.
"""
